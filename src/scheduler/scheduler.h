#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/step_plan.h"
#include "kvcache/id_allocator.h"
#include "scheduler/request.h"
#include "scheduler/text_stream.h"

namespace minisgl {

struct SchedulerConfig {
  int64_t max_running_requests = 0;
  int64_t num_pages = 0;
  int64_t page_size = 0;
  /// Most prompt tokens in one step; a longer prompt is computed in chunks.
  int64_t max_prefill_tokens = 0;
};

/// Decides what each step computes: admits waiting requests in order of arrival, computes prompts before it decodes, decodes all running
/// requests together, and ends them. Owns pages and rows; sees tokens only in results.
///
/// One owner thread, no locks; other threads reach a request only through its abort flag. A request is admitted when a row and whole pages
/// for its prompt and max_tokens are free (so that it always finishes), and holds them until its end; what a launched step references is
/// released when that step has committed. Every request that was added gets exactly one output with `finished` set, and nothing after it.
class Scheduler {
 public:
  using OutputHandler = std::function<void(const RequestOutput&)>;

  /// `executor` outlives the scheduler. `on_output` is called from within step() and abort_all(); it must neither throw nor call the
  /// scheduler.
  Scheduler(Executor& executor, const SchedulerConfig& config, OutputHandler on_output);
  ~Scheduler();

  /// Queues a validated request that fits into the pool.
  void add(std::shared_ptr<Request> request);
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  /// Builds, launches and commits one step. Does nothing if there is no work. Never throws for what a request or the executor does.
  void step();
  /// Ends every request with kAbort. Not while step() runs.
  void abort_all();

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  const PageAllocator& pages() const { return pages_; }
  const RowAllocator& rows() const { return rows_; }
  /// Why the executor is of no further use; empty while it is. All requests then fail.
  const std::string& fatal_error() const { return fatal_error_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// A request with what it holds.
  struct Sequence {
    explicit Sequence(std::shared_ptr<Request> r) : request(std::move(r)), text(*request) {}

    int64_t prompt_tokens() const { return static_cast<int64_t>(request->prompt_token_ids.size()); }
    /// Tokens whose position is known: prompt and output.
    int64_t length() const { return prompt_tokens() + static_cast<int64_t>(request->result.token_ids.size()); }
    bool in_prefill() const { return computed_tokens < prompt_tokens(); }

    std::shared_ptr<Request> request;
    TextStream text;
    int32_t row = -1;
    std::vector<int32_t> pages;
    int64_t computed_tokens = 0;  ///< tokens whose keys and values are in the cache once all launched steps are done
    bool finished = false;
    Clock::time_point arrival, admitted, first_token;
  };

  void finish_aborted();
  void build_step();
  bool build_prefill();
  void build_decode();
  bool admit(Sequence& sequence);
  void add_row(Sequence& sequence, int64_t num_tokens);
  void commit(const StepResult& result);
  void commit_sample(Sequence& sequence, const StepResult& result, size_t index);
  void finish(Sequence& sequence, FinishReason reason);
  void fail(Sequence& sequence, std::string message);
  void emit(const Sequence& sequence, size_t first_token, size_t first_byte) const;
  void remove_finished();

  Executor& executor_;
  SchedulerConfig config_;
  OutputHandler on_output_;
  PageAllocator pages_;
  RowAllocator rows_;

  std::deque<std::unique_ptr<Sequence>> waiting_;   // by arrival
  std::vector<std::unique_ptr<Sequence>> running_;  // by admission

  // The step in the making or in flight.
  StepPlan plan_;
  std::vector<Sequence*> batch_;            // of the plan's rows
  std::vector<Sequence*> sample_sequence_;  // of the plan's samples
  std::vector<Sequence*> target_sequence_;  // of the plan's targets
  uint64_t last_launched_step_ = 0;
  std::string fatal_error_;
};

}  // namespace minisgl
