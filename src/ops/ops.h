#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace minisgl {

/// A matrix [n, k] in the layout that linear() of one device wants ("packed"). Created by Ops, filled by Ops::pack_rows, then read-only.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType dtype() const { return dtype_; }
  /// How many equal slices the sum over k is cut into; 1 for everything but row-parallel layers. Part of the canonical order.
  int k_slices() const { return k_slices_; }
  /// Memory that the packed matrix occupies, padding included.
  virtual size_t bytes() const = 0;

 protected:
  LinearWeight(int64_t n, int64_t k, DType dtype, int k_slices) : n_(n), k_(k), dtype_(dtype), k_slices_(k_slices) {}

 private:
  int64_t n_;
  int64_t k_;
  DType dtype_;
  int k_slices_;
};

/// One layer's keys and values: [page][K|V][kv_head][page_size][head_dim], contiguous. Slot s is page s / page_size, offset s % page_size.
struct KvLayer {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t num_pages = 0;  ///< pages in memory, the dummy page included
  int page_size = 0;
  int kv_heads = 0;
  int head_dim = 0;
};

/// Which rows of a batch attend to what. Row r owns the tokens [query_start[r], query_start[r + 1]) of the flat batch; they are the last
/// positions of its kv_length[r] cached tokens (bottom-right aligned causal mask). All arrays live where the operators run.
struct AttentionBatch {
  int64_t rows = 0;
  const int32_t* query_start = nullptr;  ///< [rows + 1]
  const int32_t* kv_length = nullptr;    ///< [rows], tokens in the cache after this step's were stored
  const int32_t* page_table = nullptr;   ///< page of (row, position): page_table[row_index[r] * page_table_stride + position / page_size]
  const int32_t* row_index = nullptr;    ///< [rows], the row's line in the page table
  int64_t page_table_stride = 0;
};

/// The operators a model needs, on one device: the table behind which CPU and CUDA differ. Model code sees only this.
///
/// Activations ("x") are float32 or bfloat16; arithmetic, norms, softmax and angles are float32. All tensors must be on the device of the
/// table, shapes are checked (our own bug if wrong, hence MINISGL_CHECK). Row strides are free where a view makes sense.
///
/// Canonical order (CPU, docs/numerics.md): an output element depends only on its own inputs and the shapes of the weights; never on the
/// number of rows, the threads, or what else is in the batch.
class Ops {
 public:
  virtual ~Ops() = default;
  virtual Device device() const = 0;
  /// The instruction set or library in use, for `info` and `doctor` ("avx512", "avx2", "portable").
  virtual const char* name() const = 0;

  // --- weights -----------------------------------------------------------------------------------------------------------------------

  /// An empty packed matrix [n, k] of float32 or bfloat16. `k_slices` must divide k.
  virtual std::unique_ptr<LinearWeight> create_linear_weight(int64_t n, int64_t k, DType dtype, int k_slices = 1) = 0;
  /// Writes rows [row_begin, row_begin + rows.size(0)) of `weight` from `rows` [count, k], float32 or bfloat16 (rounded to nearest even
  /// if the weight is bfloat16). `rows` is in host memory. Any order, any pieces; rows never written are zero.
  virtual void pack_rows(LinearWeight& weight, int64_t row_begin, const Tensor& rows) = 0;

  // --- layers ------------------------------------------------------------------------------------------------------------------------

  /// out[t, :] = table[ids[t] - vocab_begin, :], zeros where that row does not exist (another rank's shard).
  /// ids [tokens] int32; table [vocab, hidden]; out [tokens, hidden].
  virtual void embedding(const Tensor& table, const Tensor& ids, const Tensor& out, int64_t vocab_begin = 0) = 0;
  /// The same from a packed matrix [vocab, hidden], so that tied embeddings are stored once.
  virtual void embedding(const LinearWeight& table, const Tensor& ids, const Tensor& out, int64_t vocab_begin = 0) = 0;

  /// out = x / sqrt(mean(x^2) + eps) * weight, over the last dimension. x, out [tokens, hidden]; weight [hidden] float32.
  /// out may be x. (RMSNorm, arXiv 1910.07467; rounding points as LlamaRMSNorm in float32.)
  virtual void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) = 0;
  /// residual += x; out = rms_norm(residual). All [tokens, hidden]; out may be x.
  virtual void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, float eps, const Tensor& out) = 0;
  /// RMSNorm of every head in place (Qwen3 q_norm and k_norm). x [tokens, heads, head_dim], any token stride; weight [head_dim] float32.
  virtual void head_rms_norm(const Tensor& x, const Tensor& weight, float eps) = 0;
  /// Rotary embedding in place, halves paired (x[i], x[i + D/2]). x [tokens, heads, head_dim], any token stride; positions [tokens] int32;
  /// cos_sin [positions, head_dim] float32: row p is cos of head_dim/2 angles, then sin.
  /// (RoFormer, arXiv 2104.09864; apply_rotary_pos_emb.)
  virtual void rope(const Tensor& x, const Tensor& positions, const Tensor& cos_sin) = 0;

  /// out = x * weight^T (+ bias). x [rows, k], any row stride; bias [n] float32 or empty; out [rows, n], any row stride. float32 sums in
  /// canonical order; with k_slices > 1 the slices' sums are joined by the fixed tree of sum_slices().
  virtual void linear(const Tensor& x, const LinearWeight& weight, const Tensor& bias, const Tensor& out) = 0;
  /// The slices' sums before they are joined: out [k_slices, rows, n] float32, contiguous.
  virtual void linear_slices(const Tensor& x, const LinearWeight& weight, const Tensor& out) = 0;
  /// out = the balanced binary tree over slices: ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)); an odd one out is carried up a level.
  /// slices [k_slices, rows, n] float32; bias [n] float32 or empty, added last; out [rows, n].
  virtual void sum_slices(const Tensor& slices, const Tensor& bias, const Tensor& out) = 0;

  /// out = silu(gate) * up. gate_up [tokens, 2 * n] = [gate | up]; out [tokens, n].
  virtual void silu_and_mul(const Tensor& gate_up, const Tensor& out) = 0;
  /// out[i, :] = x[rows[i], :]. rows int32.
  virtual void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) = 0;

  // --- attention ---------------------------------------------------------------------------------------------------------------------

  /// Writes keys and values of this step's tokens. k, v [tokens, kv_heads, head_dim], any token stride; slots [tokens] int32.
  virtual void store_kv(const Tensor& k, const Tensor& v, const Tensor& slots, const KvLayer& kv) = 0;
  /// Causal attention by absolute position over paged keys and values; grouped queries; float32 softmax over tiles of 64 positions that
  /// start at absolute multiples of 64. q [tokens, heads, head_dim], any token stride; out [tokens, heads * head_dim].
  /// `sliding_window` > 0: position p sees (p - sliding_window, p]; 0: no window.
  virtual void attention(const Tensor& q, const KvLayer& kv, const AttentionBatch& batch, float scale, int64_t sliding_window,
                         const Tensor& out) = 0;

  // --- mixture of experts ------------------------------------------------------------------------------------------------------------

  /// Softmax over all experts in float32, then the top_k largest (lowest expert id on ties, largest first); `normalize` divides the
  /// chosen weights by their sum. router_logits [tokens, experts] float32; ids [tokens, top_k] int32; weights [tokens, top_k] float32.
  virtual void route_top_k(const Tensor& router_logits, bool normalize, const Tensor& ids, const Tensor& weights) = 0;
  /// out[t] = tree over slices s of (sum over j in slot order of weights[t, j] * expert_out[s, t * top_k + j]).
  /// expert_out [k_slices, tokens * top_k, n] float32; weights [tokens, top_k] float32; out [tokens, n].
  virtual void combine_experts(const Tensor& expert_out, const Tensor& weights, const Tensor& out) = 0;

  // --- logits ------------------------------------------------------------------------------------------------------------------------

  /// In float32 over the last dimension, max subtracted first. logits, out [rows, vocab] float32; out may be logits.
  virtual void log_softmax(const Tensor& logits, const Tensor& out) = 0;
  /// Index of the largest element of each row, the lowest on ties. A row that holds NaN gives -1. logits [rows, n] float32; out int32.
  virtual void argmax(const Tensor& logits, const Tensor& out) = 0;
  /// The k largest of each row, largest first, lowest id first on ties. values [rows, n] float32; ids [rows, k] int32; top [rows, k].
  virtual void top_k(const Tensor& values, const Tensor& ids, const Tensor& top) = 0;
};

class ComputePool;

/// The CPU operators on `pool`. The instruction set is the best this CPU has, or the one named by MINISGL_CPU_ISA (avx512, avx2,
/// portable); throws Error(kUsage) for another name or one this CPU lacks. Instances share nothing and are used by one thread at a time.
std::unique_ptr<Ops> make_cpu_ops(ComputePool& pool);

}  // namespace minisgl
