#pragma once

#include <cstdint>
#include <memory>

#include "ops/ops.h"

namespace minisgl {

/// How a layer attends.
struct AttentionParams {
  float scale = 1;
  int64_t sliding_window = 0;  ///< 0: none
};

/// Attention over the paged KV cache. begin_step() once per step, then forward() per layer: stores this step's keys and values first
/// (a token must see itself), then attends.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  /// `slots` [tokens] int32. Both stay valid until the step's last forward().
  virtual void begin_step(const AttentionBatch& batch, const Tensor& slots) = 0;
  /// q [tokens, heads, head_dim], k and v [tokens, kv_heads, head_dim], any token stride; out [tokens, heads * head_dim].
  virtual void forward(const Tensor& q, const Tensor& k, const Tensor& v, const KvLayer& kv, const AttentionParams& params,
                       const Tensor& out) = 0;
};

/// The backend of the CPU: the operators of `ops`.
std::unique_ptr<AttentionBackend> make_cpu_attention_backend(Ops& ops);

}  // namespace minisgl
