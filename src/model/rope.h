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
OwnedTensor make_rope_table(const RopeConfig& rope, int64_t head_dim, int64_t max_positions);

}  // namespace minisgl
