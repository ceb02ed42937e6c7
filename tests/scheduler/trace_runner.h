#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/fake_executor.h"
#include "scheduler/scheduler.h"

namespace minisgl::test {

/// Plays a scheduler trace over the fake executor, so that a bug report becomes a test file. One command a line, `#` begins a comment:
///
///     config KEY=VALUE...     page_size, pages, rows, budget, cache=radix|naive, policy=fcfs|lpm, admission=full|expected, overlap=0|1,
///                             mixed=0|1, floor, insertion, eos (one token in so many ends a sequence), delay (0..1); once, first
///     arrive NAME prompt=P max=N [eos] [stop=1,2] [min=N] [choice=N] [priority=N] [namespace=N] [prompt_logprobs] [late] [mask]
///                             P: ids, ranges and repetitions (1,2,5..9,7*3) and @NAME, prompt and output of a request that ended.
///                             late: its deadline has passed. mask: its tokens depend on the ones before (late sampling)
///     step [N]                N scheduler steps (1)
///     finish                  steps until there is no work
///     abort NAME | abort_all
///     reject | nan | fatal    the next launched step is rejected; its sampled rows give NaN; the executor dies in it
///     expect SUBJECT... VALUE see below
///
/// Expectations: `expect ended NAME open|stop|length|abort|error`,
/// `expect tokens NAME N` (output so far), `expect cached NAME N`, `expect order NAME NAME...` (in which they ended),
/// `expect plan prefill=N decode=N tokens=N` (of the last launched step, any of them), and of counters
/// `expect waiting|running|free_pages|cached_pages|computed|launched|preemptions|holds|dropped|sat_out|matches N`.
///
/// After every step all states are recounted and the shadow KV is checked; each answer is compared with what the model function dictates.
class TraceRunner {
 public:
  /// Empty if all went as the trace says, else "line N: ...".
  std::string run(std::string_view text);

 private:
  struct Named {
    std::shared_ptr<Request> request;
    bool finished = false;
  };
  using Words = std::vector<std::string>;

  void execute(const Words& words);
  void configure(const Words& words);
  void arrive(const Words& words);
  void expect(const Words& words);
  void expect_plan(const Words& words) const;
  void step();
  void on_output(const RequestOutput& output);
  std::vector<int32_t> parse_ids(const std::string& text);
  Named& named(const std::string& name);
  int64_t counter(const std::string& name) const;

  FakeExecutor::Settings settings_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<std::string, Named> requests_;
  std::vector<std::string> names_;  // by request id
  Words ended_;
  std::string wrong_;  // found in a callback
};

}  // namespace minisgl::test
