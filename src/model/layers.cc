#include "model/layers.h"

#include "base/error.h"

namespace minisgl {

namespace {

OwnedTensor make_bias(const Ops& ops, int64_t features, bool present) {
  return present ? OwnedTensor(DType::kFloat32, {features}, ops.device()) : OwnedTensor();
}

size_t float_bytes(int64_t a, int64_t b, int64_t c) {
  return static_cast<size_t>(a * b * c) * sizeof(float);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(Ops& ops, int64_t out_features, int64_t in_features, bool bias, DType dtype)
    : ops_(ops), weight_(ops.create_linear_weight(out_features, in_features, dtype)), bias_(make_bias(ops, out_features, bias)) {}

RowParallelLinear::RowParallelLinear(Ops& ops, Communicator& communicator, int64_t out_features, int64_t in_features, bool bias,
                                     DType dtype, int64_t max_tokens)
    : ops_(ops), communicator_(communicator), bias_(make_bias(ops, out_features, bias)) {
  const int ranks = communicator.size();
  const int slices = row_parallel_slices(in_features);
  MINISGL_CHECK(slices % ranks == 0, "{} ranks share {} slices", ranks, slices);
  weight_ = ops.create_linear_weight(out_features, in_features / ranks, dtype, slices / ranks);
  if (ranks > 1) {
    local_sums_ = Buffer(ops.device(), float_bytes(slices / ranks, max_tokens, out_features));
    joined_sums_ = Buffer(ops.device(), float_bytes(slices, max_tokens, out_features));
  }
}

void RowParallelLinear::forward(const Tensor& x, const Tensor& out) const {
  if (communicator_.size() == 1) {
    ops_.linear(x, *weight_, bias_.view(), out);
    return;
  }
  const int64_t slices = weight_->k_slices();
  const Tensor local(local_sums_.data(), DType::kFloat32, {slices, x.size(0), weight_->n()}, ops_.device());
  const Tensor joined(joined_sums_.data(), DType::kFloat32, {slices * communicator_.size(), x.size(0), weight_->n()}, ops_.device());
  ops_.linear_slices(x, *weight_, local);
  communicator_.all_gather(local, joined);
  ops_.sum_slices(joined, bias_.view(), out);
}

}  // namespace minisgl
