#pragma once

#include <cstdint>
#include <memory>

#include "distributed/communicator.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// A linear layer whose output features may be divided among ranks: qkv_proj, gate_up_proj. Each rank owns whole rows of the matrix, so a
/// forward needs no communication. `out_features` is this rank's share; merged projections are stacked in the order the caller names.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(Ops& ops, int64_t out_features, int64_t in_features, bool bias, DType dtype);

  /// out = x weight^T + bias. x [tokens, in_features]; out [tokens, out_features].
  void forward(const Tensor& x, const Tensor& out) const { ops_.linear(x, *weight_, bias_.view(), out); }

  LinearWeight& weight() { return *weight_; }
  /// [out_features] float32, or empty.
  const Tensor& bias() const { return bias_.view(); }

 private:
  Ops& ops_;
  std::unique_ptr<LinearWeight> weight_;
  OwnedTensor bias_;
};

/// A linear layer whose input features may be divided among ranks: o_proj, down_proj. The sum over in_features is cut into
/// row_parallel_slices(in_features) slices, each rank owns whole slices, and all ranks join them by the same tree: the result has the same
/// bits on one rank and on several. `in_features` is that of the whole layer.
class RowParallelLinear {
 public:
  RowParallelLinear(Ops& ops, Communicator& communicator, int64_t out_features, int64_t in_features, bool bias, DType dtype,
                    int64_t max_tokens);

  /// x [tokens, in_features / ranks]; out [tokens, out_features]. The bias is added once, after the tree.
  void forward(const Tensor& x, const Tensor& out) const;

  LinearWeight& weight() { return *weight_; }
  const Tensor& bias() const { return bias_.view(); }

 private:
  Ops& ops_;
  Communicator& communicator_;
  std::unique_ptr<LinearWeight> weight_;
  OwnedTensor bias_;
  Buffer local_sums_;   ///< [slices / ranks, tokens, out_features]; only with more than one rank
  Buffer joined_sums_;  ///< [slices, tokens, out_features]
};

/// RMSNorm (arXiv 1910.07467) with a float32 weight.
class RmsNorm {
 public:
  RmsNorm(Ops& ops, int64_t size, double eps) : ops_(ops), weight_(DType::kFloat32, {size}, ops.device()), eps_(static_cast<float>(eps)) {}

  /// out = norm(x), over the last dimension.
  void forward(const Tensor& x, const Tensor& out) const { ops_.rms_norm(x, weight_.view(), eps_, out); }
  /// residual += x; out = norm(residual). out may be x.
  void forward_add(const Tensor& x, const Tensor& residual, const Tensor& out) const {
    ops_.add_rms_norm(x, residual, weight_.view(), eps_, out);
  }
  /// Every head of x [tokens, heads, size], in place.
  void forward_heads(const Tensor& x) const { ops_.head_rms_norm(x, weight_.view(), eps_); }

  /// [size] float32.
  const Tensor& weight() const { return weight_.view(); }

 private:
  Ops& ops_;
  OwnedTensor weight_;
  float eps_;
};

}  // namespace minisgl
