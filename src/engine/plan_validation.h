#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/step_plan.h"

namespace minisgl {

/// What an executor was built for: the bounds that every plan must keep.
struct PlanLimits {
  int64_t rows = 0;        ///< of page table and token pool, the padding row not counted
  int64_t max_tokens = 0;  ///< of one step
  int64_t max_model_len = 0;
  int64_t num_pages = 0;  ///< of every cache group, the dummy page not counted
  int64_t page_size = 0;
  int64_t cache_groups = 1;
  int64_t vocab_size = 0;
};

/// Checks that a plan touches nothing outside the limits and agrees with itself, before anything is launched: a plan may come from another
/// process. Keeps scratch memory, so that checking allocates nothing in steady state.
class PlanValidator {
 public:
  explicit PlanValidator(const PlanLimits& limits);
  /// Empty if the plan is valid, else one line that says what is wrong.
  std::string check(const StepPlan& plan);

 private:
  PlanLimits limits_;
  std::vector<uint64_t> row_seen_;  // the number of the check that last saw the row
  uint64_t check_number_ = 0;
};

}  // namespace minisgl
