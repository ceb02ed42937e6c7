#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "scheduler/fake_executor.h"
#include "scheduler/scheduler.h"

namespace minisgl::test {

/// One random world for the scheduler, from one seed: a configuration (pages and pools, some tiny; policies, caches, overlap, mixed steps;
/// faults or none), then arrivals and aborts at random while it steps. Everything that comes out is compared with what the model function
/// dictates; all states are recounted after each step.
class SchedulerFuzz {
 public:
  explicit SchedulerFuzz(uint64_t seed);
  ~SchedulerFuzz();

  /// Steps with random arrivals and aborts, then steps until all is answered. Stops at the first thing that is wrong.
  void run(int steps);

  /// What was wrong; empty if nothing.
  const std::string& error() const { return error_; }
  /// The configuration in words, for messages.
  std::string describe() const;
  int64_t steps() const { return steps_; }
  const Scheduler::Stats& stats() const { return scheduler_->stats(); }

  /// How requests ended, over the run.
  struct Endings {
    int64_t stop = 0, stop_string = 0, length = 0, abort = 0, error = 0;
  };
  const Endings& endings() const { return endings_; }

 private:
  struct Open {
    std::shared_ptr<Request> request;
    uint64_t hash = 0;  // of prompt and output so far
    bool finished = false;
    bool may_fail = false;  // it was made so that it ends with an error
  };

  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  bool never_fits(const Request& request) const;
  void arrive();
  std::shared_ptr<Request> make_request(const std::vector<int32_t>& prompt);
  void on_output(const RequestOutput& output);
  void check_end(const Open& open);
  void add_stop_strings(Request& request);
  void step();
  void set_error(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  std::mt19937_64 random_;
  uint64_t seed_;
  SchedulerConfig config_;
  FakeExecutor::Settings settings_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::vector<int32_t>> bases_;  // prefixes that prompts share
  std::map<uint64_t, Open> open_;
  std::vector<std::vector<int32_t>> past_;  // sequences that ended: prompts of a next turn
  uint64_t next_id_ = 1;
  bool faults_ = false;
  int64_t steps_ = 0;
  int64_t idle_steps_ = 0;  // since something was computed
  int64_t last_computed_ = 0;
  Endings endings_;
  std::string error_;
};

/// The mask that fuzz requests use, to be computed by both sides: allows tokens whose sum with the last one is not a multiple of 3.
void mask_by_last_token(std::span<const int32_t> output, int64_t vocab_size, std::span<uint32_t> mask);

}  // namespace minisgl::test
