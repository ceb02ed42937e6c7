#pragma once

#include <stdint.h>

/// The kernels of every CPU operator but linear(), one table per instruction set. A kernel works on one row (or one block of attention) and
/// knows neither threads nor Tensor; cpu_ops.cc cuts the work and calls them. Sources: the *_kernel.inl files, see simd.h for their rules.
///
/// Bits: an element's value depends only on its own inputs and on the shapes named in the call. A row's tail goes through the same
/// vector code in a padded register, so an element's place in a vector cannot be seen in its bits.

namespace minisgl::cpu {

inline constexpr int64_t kAttentionTile = 64;       ///< positions; tiles start at absolute multiples of it
inline constexpr int64_t kAttentionBlockRows = 96;  ///< query rows that share one widened tile of keys and values
inline constexpr int64_t kMaxSlices = 64;           ///< of k: bounds the memory for partial sums

/// What one block of attention needs: query rows of one batch row that share one KV head. A *query row* is (token, query head of the
/// group); rows are numbered token * group + head. All strides are in elements.
struct AttentionBlock {
  const void* q;  ///< token 0 of the batch row, first query head of the group
  int64_t q_token_stride;
  int64_t q_head_stride;
  void* out;  ///< the same place in the output; heads are adjacent there
  int64_t out_token_stride;
  int64_t group;      ///< query heads per KV head
  int64_t row_begin;  ///< the query rows [row_begin, row_end), at most kAttentionBlockRows
  int64_t row_end;
  int64_t first_position;  ///< absolute position of token 0
  const void* keys;        ///< this KV head's keys in page 0, [page_size, head_dim]
  int64_t value_offset;    ///< from a key to its value
  int64_t page_stride;     ///< from one page to the next
  int64_t page_size;
  const int32_t* pages;  ///< the batch row's line of the page table; only entries of visible positions are read
  int64_t head_dim;
  float scale;
  int64_t window;  ///< position p sees (p - window, p]; 0: all up to p
};

/// Floats of 64-byte aligned scratch memory that attention needs for one member: a tile of keys and one of values, then queries, outputs
/// and scores of the block's rows.
constexpr int64_t attention_scratch_floats(int64_t head_dim) {
  const int64_t padded = (head_dim + 15) / 16 * 16;
  return 2 * kAttentionTile * padded + kAttentionBlockRows * (2 * padded + kAttentionTile);
}

/// Kernels that read or write activations: `void*` points to elements of the table's activation type.
struct ActivationKernels {
  /// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x.
  void (*rms_norm)(const void* x, const float* weight, float eps, int64_t n, void* out);
  /// residual += x, rounded to the activation type; out = rms_norm(residual); out may be x.
  void (*add_rms_norm)(const void* x, void* residual, const float* weight, float eps, int64_t n, void* out);
  /// One head in place: (a, b) -> (a cos - b sin, b cos + a sin) for a = x[i], b = x[half + i].
  void (*rope)(void* x, const float* cosine, const float* sine, int64_t half);
  /// out = silu(gate) * up.
  void (*silu_and_mul)(const void* gate, const void* up, int64_t n, void* out);
  /// One token: out = tree over slices of the sum over slots, in order, of weights[j] * expert_out[slice * slice_stride + j * n].
  void (*combine_experts)(const float* expert_out, int64_t slice_stride, int64_t slices, const float* weights, int64_t slots, int64_t n,
                          void* out);
  /// By the type of keys and values: float32, bfloat16.
  void (*attention[2])(const AttentionBlock& block, float* scratch);
};

struct Kernels {
  ActivationKernels activation[2];  ///< float32, bfloat16
  void (*bf16_to_float)(const uint16_t* x, int64_t n, float* out);
  void (*float_to_bf16)(const float* x, int64_t n, uint16_t* out);
  void (*exp)(const float* x, int64_t n, float* out);
  /// out[i] = exp(x[i] - max(x)) / sum; out may be x.
  void (*softmax)(const float* x, int64_t n, float* out);
  /// out[i] = x[i] - max(x) - log(sum of exp(x[j] - max(x))); out may be x.
  void (*log_softmax)(const float* x, int64_t n, float* out);
  /// Index of the largest element, the lowest on ties; -1 if x holds NaN. 0 < n < 2^31.
  int32_t (*argmax)(const float* x, int64_t n);
};

namespace portable {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}

}  // namespace minisgl::cpu
