#include "engine/step_plan.h"

namespace minisgl {

void StepPlan::clear() {
  step = 0;
  page_deltas.clear();
  token_writes.clear();
  token_ids.clear();
  sampling_deltas.clear();
  cache_ops.clear();
  rows.clear();
  num_prefill_rows = 0;
  slots.clear();
  logit_rows.clear();
  samples.clear();
  targets.clear();
  graph_size = 0;
  late_sampling = false;
}

}  // namespace minisgl
