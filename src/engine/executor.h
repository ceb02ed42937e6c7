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
  kNanLogits,  ///< the model gave NaN: the request fails, nobody else
  kEmptyMask,  ///< no token may be drawn
};

/// Log-probabilities of one logit row: of the token of interest, then the most likely ones, which lie at [top_begin, top_begin + top_count)
/// of the result's `top_ids` and `top_logprobs`, most likely first.
struct RowLogprobs {
  float token_logprob = 0;
  int32_t top_begin = 0;
  int32_t top_count = 0;
};

/// What a step gave, in the order of the plan's `samples` and `targets`.
struct StepResult {
  enum class Status : uint8_t {
    kOk,
    kRejected,  ///< the plan is invalid; nothing was launched and no state has changed
    kFatal,     ///< the executor is of no further use
  };
  Status status = Status::kOk;
  std::string message;  ///< of a rejected or fatal step

  std::vector<int32_t> token_ids;     ///< [samples]; -1 where the row's status is not kOk
  std::vector<RowStatus> row_status;  ///< [samples]
  std::vector<RowLogprobs> logprobs;  ///< [samples], without meaning where none are wanted
  std::vector<RowLogprobs> targets;   ///< [targets]; NaN where the model gave NaN
  std::vector<int32_t> top_ids;
  std::vector<float> top_logprobs;

  /// Empties the arrays and keeps their memory.
  void clear();
};

/// Masks that a late-sampling step waits for: bit i of row r allows token i. [samples][ceil(vocab / 32)], empty: everything is allowed.
struct LateInputs {
  std::span<const uint32_t> masks;
};

/// A step in flight; the executor owns it and uses it again after release().
class Step {
 public:
  /// Waits until the step is done. Throws Error(kTimeout) past the deadline; the step goes on. The result lives until release().
  virtual const StepResult& wait(std::chrono::steady_clock::time_point deadline) = 0;
  /// Lets a late-sampling step go on; the masks are copied. Exactly once, only if the plan asked for it.
  virtual void sample(const LateInputs& inputs) = 0;
  /// The caller has no further interest. A late-sampling step that still waits goes on without masks.
  virtual void release() noexcept = 0;

 protected:
  ~Step() = default;
};

struct StepRelease {
  void operator()(Step* step) const noexcept { step->release(); }
};
/// Must not outlive its executor.
using StepHandle = std::unique_ptr<Step, StepRelease>;

/// Runs plans in order, one after another, on its own worker thread (CPU) or stream (CUDA). launch() returns at once; used by one
/// scheduler thread, abort() from any.
class Executor {
 public:
  virtual ~Executor() = default;
  /// The plan is copied or consumed before launch() returns. At most max_in_flight() handles may be held at once.
  virtual StepHandle launch(const StepPlan& plan) = 0;
  virtual int max_in_flight() const = 0;
  /// Makes every present and future wait() return a fatal result. For shutdown and lost ranks.
  virtual void abort() noexcept = 0;
};

}  // namespace minisgl
