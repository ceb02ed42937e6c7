#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/executor.h"
#include "engine/step_plan.h"
#include "kvcache/id_allocator.h"
#include "kvcache/prefix_cache.h"
#include "scheduler/output_length.h"
#include "scheduler/request.h"
#include "scheduler/sequence.h"

namespace minisgl {

enum class SchedulePolicy : uint8_t {
  kFcfs,  ///< first come, first served
  kLpm,   ///< longest prefix match first; a request that was overtaken often enough goes first all the same
};

enum class AdmissionPolicy : uint8_t {
  kFull,      ///< room for max_tokens of every running request: nothing is ever preempted
  kExpected,  ///< room for the output that is to be expected: more run at once, the newest are preempted when it was not enough
};

struct SchedulerConfig {
  int64_t max_running_requests = 0;
  int64_t num_pages = 0;
  int64_t page_size = 0;
  /// Most prompt tokens in one step; a longer prompt is computed in chunks.
  int64_t max_prefill_tokens = 0;
  /// Needed for requests with a token mask only.
  int64_t vocab_size = 0;
  PrefixCacheKind cache = PrefixCacheKind::kRadix;
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  AdmissionPolicy admission = AdmissionPolicy::kExpected;
  /// Prompts and running requests share a step, within max_prefill_tokens. Otherwise prompts come first, and running requests wait.
  bool mixed_steps = false;
  /// Build and launch step N + 1 while step N runs. Needs an executor with two steps in flight.
  bool overlap = true;
  /// With kExpected a request is always expected to go on for this many tokens. At least 2: what two steps need.
  int64_t expected_output_floor_tokens = 64;
  /// Whole pages of a prompt become matchable with each chunk that commits; those of an output in portions of this many tokens, and when
  /// the request ends: an insertion walks the whole prefix.
  int64_t output_insertion_tokens = 256;
};

/// Decides what each step computes: admits waiting requests, computes prompts before it decodes, decodes all running requests together,
/// and ends them. Owns pages, rows and the prefix cache; sees tokens only in results.
///
/// One owner thread, no locks; other threads reach a request only through its abort flag. The rules by which pages, rows and requests move
/// are the ownership contract (docs/contract.md); the numbers in comments are its rules. Every request that was added gets exactly one
/// output with `finished` set, and nothing after it.
class Scheduler {
 public:
  using OutputHandler = std::function<void(const RequestOutput&)>;

  /// `executor` outlives the scheduler. `on_output` is called from within add(), step() and abort_all(); it must neither throw nor
  /// call the scheduler.
  Scheduler(Executor& executor, const SchedulerConfig& config, OutputHandler on_output);
  ~Scheduler();

  /// Queues a validated request. One whose prompt + max_tokens can never fit into the pool is refused: it ends with an error at once,
  /// through the output handler (rule 6).
  void add(std::shared_ptr<Request> request);
  bool has_work() const { return !waiting_.empty() || !running_.empty() || !in_flight_.empty(); }
  /// Builds and launches one step, and commits the oldest one in flight: with overlap the step before, so that the one just launched runs
  /// meanwhile. Does nothing if there is no work. Never throws for what a request or the executor does.
  void step();
  /// Ends every request with kAbort and waits for what is in flight. Not while step() runs.
  void abort_all();

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  const PageAllocator& pages() const { return pages_; }
  const RowAllocator& rows() const { return rows_; }
  const PrefixCache& prefix_cache() const { return *cache_; }
  /// Why the executor is of no further use; empty while it is. All requests then fail.
  const std::string& fatal_error() const { return fatal_error_; }

  /// Counters since the start.
  struct Stats {
    int64_t steps = 0;
    int64_t prefix_matches = 0;  ///< walks of the tree for admission
    int64_t preemptions = 0;
    int64_t holds = 0;    ///< requests that waited for another to compute what they share
    int64_t sat_out = 0;  ///< rows that missed a step for want of a page
    int64_t dropped = 0;  ///< tokens launched past the end of their request
    int64_t evicted_pages = 0;
  };
  const Stats& stats() const { return stats_; }

  /// Compares what requests hold with the states of pages and rows (rule 1) and recounts the prefix cache. Throws Error(kInternal).
  /// Linear in the pool: for tests and debug builds.
  void check_integrity() const;

 private:
  using Clock = Sequence::Clock;
  using State = Sequence::State;

  /// A step that was launched and not yet committed, in the terms of its plan.
  struct LaunchedStep {
    struct BatchRow {
      Sequence* sequence;
      int64_t end;  ///< position after the last one computed
    };
    struct Target {
      Sequence* sequence;
      int32_t token_id;
    };
    uint64_t step = 0;
    std::vector<BatchRow> rows;
    std::vector<Sequence*> samples;
    std::vector<Target> targets;
    bool awaits_masks = false;
    StepHandle handle;
  };

  // scheduler.cc: the loop and the end of requests.
  bool launch_step();
  void end_requests_on_demand();
  bool end_on_demand(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason);
  void fail(Sequence& sequence, ErrorKind kind, std::string message);
  void fail_all(const std::string& message);
  void emit(const Sequence& sequence, size_t first_token, size_t first_byte) const;
  void release(Sequence& sequence, bool keep_prefix);
  void remove_finished();

  // admission.cc: which waiting requests begin, and what room they need.
  void admit_waiting(int64_t budget);
  void order_candidates();
  Sequence* find_writer(const Sequence& sequence, int64_t matched_pages) const;
  bool hold(Sequence& sequence, int64_t matched_pages);
  bool find_room(Sequence& sequence);
  int64_t matchable_tokens(const Sequence& sequence) const;
  int64_t expected_pages(const Sequence& sequence) const;
  int64_t pages_of(int64_t tokens) const { return (tokens + config_.page_size - 1) / config_.page_size; }
  int64_t available_pages() const { return pages_.free() + cache_->evictable_committed_pages(); }
  bool take_pages(std::span<int32_t> ids);

  // preemption.cc: who has to make room.
  void preempt();
  int64_t pages_for_two_steps(const Sequence& sequence) const;
  void stop(Sequence& sequence);
  void requeue(Sequence& sequence);
  void enqueue(std::unique_ptr<Sequence> sequence);

  // build.cc: the plan.
  bool build_step();
  void build_prefill(int64_t budget);
  void select_decode_rows();
  bool grow(Sequence& sequence);
  void add_row(Sequence& sequence, int64_t num_tokens);
  void add_page_deltas(Sequence& sequence);
  void add_page_deltas_of_duplicates(const Sequence& sequence);

  // commit.cc: results.
  void commit_oldest();
  void commit(LaunchedStep& step, const StepResult& result);
  void commit_targets(const LaunchedStep& step, const StepResult& result);
  void commit_sample(Sequence& sequence, const StepResult& result, size_t index);
  void share_pages(Sequence& sequence);
  void bring_masks();

  Executor& executor_;
  SchedulerConfig config_;
  OutputHandler on_output_;
  PageAllocator pages_;
  RowAllocator rows_;
  std::unique_ptr<PrefixCache> cache_;
  size_t max_in_flight_;

  std::deque<std::unique_ptr<Sequence>> waiting_;   // in the order of Sequence::before
  std::vector<std::unique_ptr<Sequence>> running_;  // the same; stopping ones included
  std::vector<std::unique_ptr<Sequence>> ended_;    // finished, but a launched step refers to them
  uint64_t next_arrival_number_ = 1;
  bool waiting_finished_ = false;  // some of waiting_
  bool running_finished_ = false;  // some of running_
  size_t next_checked_ = 0;        // of waiting_: whose abort flag and deadline are looked at next
  /// The request whose turn it is found no room, and nothing has changed since.
  bool admission_blocked_ = false;
  int output_insertions_ = 0;  // of the step that is being committed
  OutputLengthEstimate output_length_;

  // The step in the making.
  StepPlan plan_;
  std::unique_ptr<LaunchedStep> building_;
  std::vector<Sequence*> decode_rows_;
  std::vector<std::unique_ptr<LaunchedStep>> in_flight_;  // oldest first
  std::vector<std::unique_ptr<LaunchedStep>> spare_;
  uint64_t last_launched_step_ = 0;
  Clock::time_point now_;
  std::string fatal_error_;
  Stats stats_;

  // Scratch, so that steps allocate nothing.
  struct Candidate {
    size_t index;  // in waiting_
    int32_t matched_pages;
    bool aged;
  };
  std::vector<Candidate> candidates_;
  std::vector<PrefixCache::Duplicate> duplicates_;
  std::vector<uint32_t> masks_;
};

}  // namespace minisgl
