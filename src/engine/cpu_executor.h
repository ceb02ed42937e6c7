#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/compute_pool.h"
#include "engine/executor.h"
#include "engine/logprobs.h"
#include "engine/plan_validation.h"
#include "engine/sampler.h"
#include "kvcache/kv_pool.h"
#include "kvcache/sequence_tables.h"
#include "model/forward_batch.h"
#include "ops/ops.h"

namespace minisgl {

/// The model as an executor needs it.
class ForwardModel {
 public:
  virtual ~ForwardModel() = default;
  /// Runs all layers over the batch; the hidden states stay inside until the next call.
  virtual void forward(const ForwardBatch& batch) = 0;
  /// logits [rows, vocab] float32 of the tokens `rows` [rows] int32 (flat indices of the last forward).
  virtual void head(const Tensor& rows, const Tensor& logits) = 0;
};

/// Runs plans on its own thread; the operators it calls spread over the process's compute pool. Owns the device state that plans change:
/// page table, token pool, sampling state of rows.
///
/// launch() checks and copies the plan into a slot and returns, so that the caller builds the next plan while this one runs. An
/// exception in a step is fatal: that step and all later ones end with it.
class CpuExecutor final : public Executor {
 public:
  struct Settings {
    PlanLimits limits;
    int64_t logit_block_rows = 256;  ///< most rows of the head at a time
    int64_t max_top_logprobs = 20;
    int max_in_flight = 2;
  };

  /// Everything referred to outlives the executor. The KV pools are those of `model`, one per cache group.
  CpuExecutor(const Settings& settings, ForwardModel& model, std::span<KvPool* const> kv_pools, Ops& ops, ComputePool& pool);
  /// Ends after the step that runs. No handle may be left.
  ~CpuExecutor() override;

  StepHandle launch(const StepPlan& plan) override;
  int max_in_flight() const override { return settings_.max_in_flight; }
  void abort() noexcept override;

  /// Memory of device state and logits of an executor; what is not used is not resident.
  static size_t workspace_bytes(const Settings& settings);

 private:
  class Slot;
  enum class Phase : uint8_t { kFree, kQueued, kRunning, kAwaitingMasks, kDone };

  void work();
  /// Makes the executor dead, unless it is. Under mutex_.
  void die(std::string message);
  /// The queued slot that was launched first, or null. Under mutex_.
  Slot* next_queued() const;
  void run(Slot& slot);
  void apply_deltas(const StepPlan& plan);
  void forward(const StepPlan& plan);
  void sample_block(const StepPlan& plan, std::span<const uint32_t> masks, int64_t begin, int64_t end, StepResult& result);
  /// Waits until the caller has brought masks. False: the executor was stopped.
  bool await_masks(Slot& slot);

  Settings settings_;
  ForwardModel& model_;
  std::vector<KvPool*> kv_pools_;
  PlanValidator validator_;
  Sampler sampler_;
  LogprobRows logprob_rows_;

  // Device state: the worker's alone.
  PageTable page_table_;
  TokenPool token_pool_;
  std::vector<RowSampling> row_sampling_;

  // The batch as operators want it: [tokens] or [rows], rewritten by each step.
  OwnedTensor input_ids_;
  OwnedTensor positions_;
  OwnedTensor slots_;
  OwnedTensor query_start_;
  OwnedTensor kv_length_;
  OwnedTensor row_index_;
  OwnedTensor logit_rows_;
  OwnedTensor logits_;  // [logit_block_rows, vocab]
  std::vector<SampleJob> jobs_;
  std::vector<int64_t> job_logprob_row_;
  size_t next_sample_ = 0;
  size_t next_target_ = 0;

  // Shared with callers, under mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Slot>> steps_;
  uint64_t launches_ = 0;  // numbers the steps: the worker takes them in this order
  int held_ = 0;           // handles not released
  bool stop_ = false;
  bool dead_ = false;
  StepResult dead_result_;  // what every step that is not done ends with once dead_; written once

  std::thread worker_;
};

}  // namespace minisgl
