#pragma once

#include "base/compute_pool.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/packed_weight.h"
#include "tensor/tensor.h"

namespace minisgl::cpu {

// Matrix products with a packed weight, in canonical order: the sum of an output element (of one slice of k) is one float32 chain
// acc = x[k] * w[k] + acc over ascending k from zero, whatever the number of rows, the threads or the split of n. Slices are joined by the
// tree of Ops::sum_slices, the bias is added last, the result is rounded once if `out` is bfloat16.
//
// x [rows, k] float32 or bfloat16, any row stride; bias [n] float32 or empty; at most 64 slices. A float32 copy of up to 512 rows of x
// belongs to the calling thread: it grows to the largest shape seen and is kept, so that steady state allocates nothing.

/// The types that activations and KV may have.
inline bool is_activation(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
}

/// out [rows, n] float32 or bfloat16, any row stride; must not overlap x.
void linear(ComputePool& pool, Isa isa, const Tensor& x, const CpuLinearWeight& weight, const Tensor& bias, const Tensor& out);

/// The slices' sums before they are joined: out [k_slices, rows, n] float32, contiguous.
void linear_slices(ComputePool& pool, Isa isa, const Tensor& x, const CpuLinearWeight& weight, const Tensor& out);

/// slices [k_slices, rows, n] float32, contiguous; out [rows, n] float32 or bfloat16, any row stride.
void sum_slices(ComputePool& pool, const Tensor& slices, const Tensor& bias, const Tensor& out);

/// Ops::pack_rows on all members of the pool.
void pack_rows(ComputePool& pool, CpuLinearWeight& weight, int64_t row_begin, const Tensor& rows);

}  // namespace minisgl::cpu
