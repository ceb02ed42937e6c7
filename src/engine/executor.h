#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/step_plan.h"

namespace minisgl {

enum class RowStatus : uint8_t {
  kOk,
  kNanLogits,   ///< the model gave NaN: the request fails, nobody else
  kEmptyMask,   ///< no token may be drawn
};

/// Log-probabilities of one logit row: of the token of interest, then the `top` most likely ones.
struct RowLogprobs {
  float token_logprob = 0;
  std::vector<int32_t> top_ids;
  std::vector<float> top_logprobs;
};

/// What a step gave, in the order of the plan's `samples` and `targets`.
struct StepResult {
  enum class Status : uint8_t { kOk, kRejected, kFatal };
  Status status = Status::kOk;
  std::string message;  ///< of a rejected or fatal step

  std::vector<int32_t> token_ids;      ///< [samples]
  std::vector<RowStatus> row_status;   ///< [samples]
  std::vector<RowLogprobs> logprobs;   ///< [samples], empty entries where none are wanted
  std::vector<RowLogprobs> targets;    ///< [targets]
};

/// Masks that a late-sampling step waits for: bit i of row r allows token i. [samples][ceil(vocab / 32)], empty: everything is allowed.
struct LateInputs {
  std::span<const uint32_t> masks;
};

/// A step in flight.
class StepHandle {
 public:
  virtual ~StepHandle() = default;
  /// Waits until the step is done. Throws Error(kTimeout) past the deadline; the step goes on. The result lives until the handle dies.
  virtual const StepResult& wait(std::chrono::steady_clock::time_point deadline) = 0;
  /// Lets a late-sampling step go on. Exactly once, only if the plan asked for it.
  virtual void sample(const LateInputs& inputs) = 0;
};

/// Runs plans in order, one after another, on its own worker thread (CPU) or stream (CUDA). launch() returns at once; used by one
/// scheduler thread, abort() from any.
class Executor {
 public:
  virtual ~Executor() = default;
  /// The plan is copied or consumed before launch() returns.
  virtual std::unique_ptr<StepHandle> launch(const StepPlan& plan) = 0;
  /// Makes every present and future wait() return a fatal result. For shutdown and lost ranks.
  virtual void abort() = 0;
};

}  // namespace minisgl
