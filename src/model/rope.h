#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"
#include "tensor/tensor.h"

namespace minisgl {

/// The head_dim / 2 angles per position of rotary embedding (RoFormer, arXiv 2104.09864), after the scaling that `rope.kind` names:
/// default, linear (arXiv 2306.15595), llama3 (the Llama 3.1 release) or yarn (arXiv 2309.00071). Every step is float32 in the order of
/// Hugging Face's modeling_rope_utils.py, whose tables the model's weights were trained with.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

/// [max_positions, head_dim] float32: row p holds the cosines of p * inverse_frequency, then the sines, both times the attention factor.
/// Rows are computed when a position first needs them: a model that declares millions of positions costs only those that are used.
class RopeTable {
 public:
  RopeTable(const RopeConfig& rope, int64_t head_dim, int64_t max_positions);

  /// Computes the rows of all positions up to `position`, which is below max_positions, if they are not there yet. Allocates nothing.
  void cover(int64_t position);
  /// The whole table; only the rows up to the largest covered position hold values.
  const Tensor& view() const { return table_.view(); }
  size_t bytes() const { return table_.bytes(); }

 private:
  std::vector<float> frequencies_;
  float scale_;
  OwnedTensor table_;
  int64_t covered_ = 0;  ///< rows computed
};

}  // namespace minisgl
