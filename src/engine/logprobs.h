#pragma once

#include <cstdint>
#include <vector>

#include "engine/executor.h"
#include "ops/ops.h"

namespace minisgl {

/// Log-probabilities of raw logits (before penalties and temperature), natural logarithm; a token of probability 0 has minus infinity.
/// Rows are computed before the sampler overwrites the logits, and read once the sampled token is known.
class LogprobRows {
 public:
  /// `max_rows`: most rows computed between two calls of clear(). `max_top`: largest number of most likely tokens.
  LogprobRows(Ops& ops, int64_t vocab_size, int64_t max_rows, int64_t max_top);

  void clear() { rows_ = 0; }
  /// Computes the log-probabilities of one row of logits [1, vocab] and returns their number.
  int64_t compute(const Tensor& logits);
  /// The log-probability of `token_id` (< 0: NaN) and of the `top` most likely tokens, which are appended to result's arrays.
  RowLogprobs read(int64_t row, int32_t token_id, int32_t top, StepResult& result);

 private:
  Ops& ops_;
  int64_t rows_ = 0;
  OwnedTensor logprobs_;  // [max_rows, vocab] float32, resident where used
  OwnedTensor top_ids_;   // [max_top]
  OwnedTensor top_;       // [max_top]
};

}  // namespace minisgl
