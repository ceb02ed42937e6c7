#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/compute_pool.h"
#include "base/error.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/top_k.h"

namespace minisgl {

namespace cpu {

namespace {

/// Work on fewer elements than this runs on the calling thread: waking the pool costs more than it saves.
constexpr int64_t kInlineElements = 32 * 1024;
/// Elements of one chunk of a pool job, about.
constexpr int64_t kChunkElements = 8 * 1024;
/// Attention with fewer multiply-adds than this runs on the calling thread.
constexpr int64_t kInlineMultiplyAdds = 128 * 1024;

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return avx512::kernels();
    case Isa::kAvx2:
      return avx2::kernels();
#endif
    default:
      return portable::kernels();
  }
}

/// Element `offset` of `tensor`.
char* at(const Tensor& tensor, int64_t offset) {
  return static_cast<char*>(tensor.raw()) + offset * static_cast<int64_t>(dtype_size(tensor.dtype()));
}

char* row_of(const Tensor& tensor, int64_t row) {
  return at(tensor, row * tensor.stride(0));
}

void check_activation(const char* name, const Tensor& tensor, const Shape& shape) {
  MINISGL_CHECK(tensor.shape() == shape && is_activation(tensor.dtype()), "{} is {} {}, expected {} float32 or bfloat16", name,
                dtype_name(tensor.dtype()), tensor.shape().to_string(), shape.to_string());
}

void check_tensor(const char* name, const Tensor& tensor, DType dtype, const Shape& shape) {
  MINISGL_CHECK(tensor.shape() == shape && tensor.dtype() == dtype, "{} is {} {}, expected {} {}", name, dtype_name(tensor.dtype()),
                tensor.shape().to_string(), dtype_name(dtype), shape.to_string());
}

void check_contiguous(const char* name, const Tensor& tensor, DType dtype, const Shape& shape) {
  check_tensor(name, tensor, dtype, shape);
  MINISGL_CHECK(tensor.is_contiguous(), "{} must be contiguous", name);
}

void check_same_dtype(const Tensor& a, const Tensor& b) {
  MINISGL_CHECK(a.dtype() == b.dtype(), "activations of one call are {} and {}", dtype_name(a.dtype()), dtype_name(b.dtype()));
}

class CpuOps final : public Ops {
 public:
  CpuOps(ComputePool& pool, Isa isa) : pool_(pool), isa_(isa), kernels_(kernels_of(isa)), scratch_(static_cast<size_t>(pool.threads())) {
    MINISGL_CHECK(isa_available(isa), "this CPU lacks {}", isa_name(isa));
  }

  Device device() const override { return {}; }
  const char* name() const override { return isa_name(isa_); }

  std::unique_ptr<LinearWeight> create_linear_weight(int64_t n, int64_t k, DType dtype, int k_slices) override {
    return std::make_unique<CpuLinearWeight>(n, k, dtype, k_slices);
  }

  void pack_rows(LinearWeight& weight, int64_t row_begin, const Tensor& rows) override {
    cpu::pack_rows(pool_, dynamic_cast<CpuLinearWeight&>(weight), row_begin, rows);
  }

  void linear(const Tensor& x, const LinearWeight& weight, const Tensor& bias, const Tensor& out) override {
    cpu::linear(pool_, isa_, x, dynamic_cast<const CpuLinearWeight&>(weight), bias, out);
  }

  void linear_slices(const Tensor& x, const LinearWeight& weight, const Tensor& out) override {
    cpu::linear_slices(pool_, isa_, x, dynamic_cast<const CpuLinearWeight&>(weight), out);
  }

  void sum_slices(const Tensor& slices, const Tensor& bias, const Tensor& out) override { cpu::sum_slices(pool_, slices, bias, out); }

  void embedding(const Tensor& table, const Tensor& ids, const Tensor& out, int64_t vocab_begin) override {
    check_activation("table", table, {table.size(0), out.size(1)});
    embed(table.size(0), ids, out, vocab_begin,
          [&](int64_t id, char* target) { copy_row(row_of(table, id), table.dtype(), target, out.dtype(), out.size(1)); });
  }

  void embedding(const LinearWeight& table, const Tensor& ids, const Tensor& out, int64_t vocab_begin) override {
    const auto& packed = dynamic_cast<const CpuLinearWeight&>(table);
    MINISGL_CHECK(packed.k() == out.size(1), "table [{}, {}] for an output of {}", packed.n(), packed.k(), out.shape().to_string());
    embed(packed.n(), ids, out, vocab_begin, [&](int64_t id, char* target) {
      if (out.dtype() == DType::kFloat32) {
        packed.read_row(id, reinterpret_cast<float*>(target));
      } else {
        packed.read_row(id, reinterpret_cast<BFloat16*>(target));
      }
    });
  }

  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) override {
    const int64_t tokens = x.size(0), hidden = x.size(1);
    check_activation("x", x, {tokens, hidden});
    check_activation("out", out, {tokens, hidden});
    check_same_dtype(x, out);
    check_tensor("weight", weight, DType::kFloat32, {hidden});
    const auto kernel = activation(x).rms_norm;
    for_rows(tokens, hidden, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) kernel(row_of(x, t), weight.data<float>(), eps, hidden, row_of(out, t));
    });
  }

  void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, float eps, const Tensor& out) override {
    const int64_t tokens = x.size(0), hidden = x.size(1);
    check_activation("x", x, {tokens, hidden});
    check_activation("residual", residual, {tokens, hidden});
    check_activation("out", out, {tokens, hidden});
    check_same_dtype(x, residual);
    check_same_dtype(x, out);
    check_tensor("weight", weight, DType::kFloat32, {hidden});
    const auto kernel = activation(x).add_rms_norm;
    for_rows(tokens, hidden, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        kernel(row_of(x, t), row_of(residual, t), weight.data<float>(), eps, hidden, row_of(out, t));
      }
    });
  }

  void head_rms_norm(const Tensor& x, const Tensor& weight, float eps) override {
    const int64_t tokens = x.size(0), heads = x.size(1), head_dim = x.size(2);
    check_activation("x", x, {tokens, heads, head_dim});
    check_tensor("weight", weight, DType::kFloat32, {head_dim});
    const auto kernel = activation(x).rms_norm;
    for_rows(tokens, heads * head_dim, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          char* head = at(x, t * x.stride(0) + h * x.stride(1));
          kernel(head, weight.data<float>(), eps, head_dim, head);
        }
      }
    });
  }

  void rope(const Tensor& x, const Tensor& positions, const Tensor& cos_sin) override {
    const int64_t tokens = x.size(0), heads = x.size(1), head_dim = x.size(2);
    check_activation("x", x, {tokens, heads, head_dim});
    check_tensor("positions", positions, DType::kInt32, {tokens});
    check_tensor("cos_sin", cos_sin, DType::kFloat32, {cos_sin.size(0), head_dim});
    MINISGL_CHECK(head_dim % 2 == 0, "head_dim {} is odd", head_dim);
    const auto kernel = activation(x).rope;
    for_rows(tokens, heads * head_dim, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t position = positions.data<int32_t>()[t];
        MINISGL_CHECK(position >= 0 && position < cos_sin.size(0), "position {} of {}", position, cos_sin.size(0));
        const float* cosine = cos_sin.data<float>() + position * cos_sin.stride(0);
        for (int64_t h = 0; h < heads; ++h) {
          kernel(at(x, t * x.stride(0) + h * x.stride(1)), cosine, cosine + head_dim / 2, head_dim / 2);
        }
      }
    });
  }

  void silu_and_mul(const Tensor& gate_up, const Tensor& out) override {
    const int64_t tokens = out.size(0), n = out.size(1);
    check_activation("out", out, {tokens, n});
    check_activation("gate_up", gate_up, {tokens, 2 * n});
    check_same_dtype(gate_up, out);
    const auto kernel = activation(out).silu_and_mul;
    for_rows(tokens, 2 * n, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        kernel(row_of(gate_up, t), at(gate_up, t * gate_up.stride(0) + n), n, row_of(out, t));
      }
    });
  }

  void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override {
    const int64_t count = out.size(0), n = out.size(1);
    check_activation("out", out, {count, n});
    check_activation("x", x, {x.size(0), n});
    check_tensor("rows", rows, DType::kInt32, {count});
    for_rows(count, n, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = rows.data<int32_t>()[i];
        MINISGL_CHECK(row >= 0 && row < x.size(0), "row {} of {}", row, x.size(0));
        copy_row(row_of(x, row), x.dtype(), row_of(out, i), out.dtype(), n);
      }
    });
  }

  void store_kv(const Tensor& k, const Tensor& v, const Tensor& slots, const KvLayer& kv) override {
    const int64_t tokens = k.size(0), heads = kv.kv_heads, head_dim = kv.head_dim;
    check_activation("k", k, {tokens, heads, head_dim});
    check_activation("v", v, {tokens, heads, head_dim});
    check_tensor("slots", slots, DType::kInt32, {tokens});
    MINISGL_CHECK(is_activation(kv.dtype), "keys and values of {}", dtype_name(kv.dtype));
    const auto element_bytes = static_cast<int64_t>(dtype_size(kv.dtype));
    for_rows(tokens, 2 * heads * head_dim, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t slot = slots.data<int32_t>()[t];
        MINISGL_CHECK(slot >= 0 && slot / kv.page_size < kv.num_pages, "slot {} of {} pages of {}", slot, kv.num_pages, kv.page_size);
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t key_head = slot / kv.page_size * 2 * heads + h;
          const auto target = [&](int64_t head) {
            return static_cast<char*>(kv.data) + (head * kv.page_size + slot % kv.page_size) * head_dim * element_bytes;
          };
          copy_row(at(k, t * k.stride(0) + h * k.stride(1)), k.dtype(), target(key_head), kv.dtype, head_dim);
          copy_row(at(v, t * v.stride(0) + h * v.stride(1)), v.dtype(), target(key_head + heads), kv.dtype, head_dim);
        }
      }
    });
  }

  void attention(const Tensor& q, const KvLayer& kv, const AttentionBatch& batch, float scale, int64_t sliding_window,
                 const Tensor& out) override {
    const int64_t tokens = q.size(0), heads = q.size(1), head_dim = q.size(2);
    check_activation("q", q, {tokens, heads, kv.head_dim});
    check_activation("out", out, {tokens, heads * head_dim});
    check_same_dtype(q, out);
    MINISGL_CHECK(is_activation(kv.dtype), "keys and values of {}", dtype_name(kv.dtype));
    MINISGL_CHECK(kv.kv_heads > 0 && heads % kv.kv_heads == 0, "{} query heads for {} KV heads", heads, kv.kv_heads);
    MINISGL_CHECK(batch.query_start[batch.rows] <= tokens, "rows hold {} tokens, q {}", batch.query_start[batch.rows], tokens);
    const int64_t group = heads / kv.kv_heads;
    const auto kernel = activation(q).attention[kv.dtype == DType::kBFloat16 ? 1 : 0];

    // Items of one batch row are numbered block * kv_heads + head; first_item_ has the first of each row.
    first_item_.resize(static_cast<size_t>(batch.rows + 1));
    int64_t items = 0, multiply_adds = 0;
    for (int64_t r = 0; r < batch.rows; ++r) {
      const int64_t row_tokens = batch.query_start[r + 1] - batch.query_start[r];
      MINISGL_CHECK(row_tokens >= 0 && row_tokens <= batch.kv_length[r], "row {} has {} tokens and {} cached", r, row_tokens,
                    batch.kv_length[r]);
      first_item_[static_cast<size_t>(r)] = items;
      items += (row_tokens * group + kAttentionBlockRows - 1) / kAttentionBlockRows * kv.kv_heads;
      multiply_adds += row_tokens * batch.kv_length[r] * heads * head_dim;
    }
    first_item_[static_cast<size_t>(batch.rows)] = items;
    reserve_scratch(static_cast<size_t>(attention_scratch_floats(head_dim)) * sizeof(float));

    const auto run_items = [&](int64_t begin, int64_t end, int member) {
      for (int64_t i = begin; i < end; ++i) {
        // The last blocks of a row see the most positions: they go first, so that the members finish together.
        const int64_t item = items - 1 - i;
        const int64_t r = std::upper_bound(first_item_.begin(), first_item_.end(), item) - first_item_.begin() - 1;
        const int64_t in_row = item - first_item_[static_cast<size_t>(r)];
        const int64_t head = in_row % kv.kv_heads, block_index = in_row / kv.kv_heads;
        const int64_t first_token = batch.query_start[r], row_tokens = batch.query_start[r + 1] - first_token;
        AttentionBlock block;
        block.q = at(q, first_token * q.stride(0) + head * group * q.stride(1));
        block.q_token_stride = q.stride(0);
        block.q_head_stride = q.stride(1);
        block.out = at(out, first_token * out.stride(0) + head * group * head_dim);
        block.out_token_stride = out.stride(0);
        block.group = group;
        block.row_begin = block_index * kAttentionBlockRows;
        block.row_end = std::min(block.row_begin + kAttentionBlockRows, row_tokens * group);
        block.first_position = batch.kv_length[r] - row_tokens;
        block.keys = static_cast<const char*>(kv.data) + head * kv.page_size * head_dim * static_cast<int64_t>(dtype_size(kv.dtype));
        block.value_offset = kv.kv_heads * int64_t{kv.page_size} * head_dim;
        block.page_stride = 2 * block.value_offset;
        block.page_size = kv.page_size;
        block.pages = batch.page_table + batch.row_index[r] * batch.page_table_stride;
        block.head_dim = head_dim;
        block.scale = scale;
        block.window = sliding_window;
        kernel(block, static_cast<float*>(scratch_[static_cast<size_t>(member)].data()));
      }
    };
    if (multiply_adds <= kInlineMultiplyAdds) {
      run_items(0, items, 0);
    } else {
      pool_.parallel_for(items, 1, run_items);
    }
  }

  void route_top_k(const Tensor& router_logits, bool normalize, const Tensor& ids, const Tensor& weights) override {
    const int64_t tokens = router_logits.size(0), experts = router_logits.size(1), chosen = ids.size(1);
    check_tensor("router_logits", router_logits, DType::kFloat32, {tokens, experts});
    check_tensor("ids", ids, DType::kInt32, {tokens, chosen});
    check_tensor("weights", weights, DType::kFloat32, {tokens, chosen});
    MINISGL_CHECK(chosen >= 1 && chosen <= experts, "top {} of {} experts", chosen, experts);
    reserve_scratch(static_cast<size_t>(experts) * sizeof(float));
    for_rows(tokens, 4 * experts, [&](int64_t begin, int64_t end, int member) {
      float* probabilities = static_cast<float*>(scratch_[static_cast<size_t>(member)].data());
      for (int64_t t = begin; t < end; ++t) {
        kernels_.softmax(router_logits.data<float>() + t * router_logits.stride(0), experts, probabilities);
        float* weight = weights.data<float>() + t * weights.stride(0);
        cpu::top_k(probabilities, experts, chosen, ids.data<int32_t>() + t * ids.stride(0), weight);
        if (!normalize) continue;
        float sum = 0.0f;
        for (int64_t j = 0; j < chosen; ++j) sum += weight[j];
        for (int64_t j = 0; j < chosen; ++j) weight[j] /= sum;
      }
    });
  }

  void combine_experts(const Tensor& expert_out, const Tensor& weights, const Tensor& out) override {
    const int64_t tokens = out.size(0), n = out.size(1), slots = weights.size(1), slices = expert_out.size(0);
    check_activation("out", out, {tokens, n});
    check_tensor("weights", weights, DType::kFloat32, {tokens, slots});
    check_contiguous("expert_out", expert_out, DType::kFloat32, {slices, tokens * slots, n});
    MINISGL_CHECK(slots >= 1 && slices >= 1 && slices <= kMaxSlices, "{} slots, {} slices", slots, slices);
    const auto kernel = activation(out).combine_experts;
    for_rows(tokens, slices * slots * n, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        kernel(expert_out.data<float>() + t * slots * n, tokens * slots * n, slices, weights.data<float>() + t * weights.stride(0), slots,
               n, row_of(out, t));
      }
    });
  }

  void log_softmax(const Tensor& logits, const Tensor& out) override {
    const int64_t rows = logits.size(0), n = logits.size(1);
    check_tensor("logits", logits, DType::kFloat32, {rows, n});
    check_tensor("out", out, DType::kFloat32, {rows, n});
    for_rows(rows, 4 * n, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        kernels_.log_softmax(logits.data<float>() + r * logits.stride(0), n, out.data<float>() + r * out.stride(0));
      }
    });
  }

  void argmax(const Tensor& logits, const Tensor& out) override {
    const int64_t rows = logits.size(0), n = logits.size(1);
    check_tensor("logits", logits, DType::kFloat32, {rows, n});
    check_tensor("out", out, DType::kInt32, {rows});
    for_rows(rows, n, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) out.data<int32_t>()[r] = kernels_.argmax(logits.data<float>() + r * logits.stride(0), n);
    });
  }

  void top_k(const Tensor& values, const Tensor& ids, const Tensor& top) override {
    const int64_t rows = values.size(0), n = values.size(1), k = ids.size(1);
    check_tensor("values", values, DType::kFloat32, {rows, n});
    check_tensor("ids", ids, DType::kInt32, {rows, k});
    check_tensor("top", top, DType::kFloat32, {rows, k});
    MINISGL_CHECK(k >= 1 && k <= n, "top {} of {}", k, n);
    for_rows(rows, n, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        cpu::top_k(values.data<float>() + r * values.stride(0), n, k, ids.data<int32_t>() + r * ids.stride(0),
                   top.data<float>() + r * top.stride(0));
      }
    });
  }

 private:
  const ActivationKernels& activation(const Tensor& x) const { return kernels_.activation[x.dtype() == DType::kBFloat16 ? 1 : 0]; }

  /// body(begin, end, member) over `rows` rows, each about the work of a pass over `row_elements` elements.
  template <typename Body>
  void for_rows(int64_t rows, int64_t row_elements, const Body& body) {
    if (rows <= 1 || rows * row_elements <= kInlineElements) {
      if (rows > 0) body(0, rows, 0);
    } else {
      pool_.parallel_for(rows, std::max<int64_t>(1, kChunkElements / row_elements), body);
    }
  }

  /// At least `bytes` for each member. Grows to the largest shape seen and stays, so that steady state allocates nothing.
  void reserve_scratch(size_t bytes) {
    for (Buffer& buffer : scratch_) {
      if (buffer.bytes() < bytes) buffer = Buffer(Device{}, bytes);
    }
  }

  void copy_row(const char* from, DType from_dtype, char* to, DType to_dtype, int64_t n) const {
    if (from_dtype == to_dtype) {
      std::memcpy(to, from, static_cast<size_t>(n) * dtype_size(to_dtype));
    } else if (to_dtype == DType::kFloat32) {
      kernels_.bf16_to_float(reinterpret_cast<const uint16_t*>(from), n, reinterpret_cast<float*>(to));
    } else {
      kernels_.float_to_bf16(reinterpret_cast<const float*>(from), n, reinterpret_cast<uint16_t*>(to));
    }
  }

  /// read(id, target) writes one existing row.
  template <typename Read>
  void embed(int64_t vocab, const Tensor& ids, const Tensor& out, int64_t vocab_begin, const Read& read) {
    const int64_t tokens = out.size(0), hidden = out.size(1);
    check_activation("out", out, {tokens, hidden});
    check_tensor("ids", ids, DType::kInt32, {tokens});
    for_rows(tokens, hidden, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t id = ids.data<int32_t>()[t] - vocab_begin;
        if (id >= 0 && id < vocab) {
          read(id, row_of(out, t));
        } else {
          std::memset(row_of(out, t), 0, static_cast<size_t>(hidden) * dtype_size(out.dtype()));
        }
      }
    });
  }

  ComputePool& pool_;
  Isa isa_;
  const Kernels& kernels_;
  std::vector<Buffer> scratch_;  ///< by member of the pool
  std::vector<int64_t> first_item_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(ComputePool& pool, Isa isa) {
  return std::make_unique<CpuOps>(pool, isa);
}

}  // namespace cpu

std::unique_ptr<Ops> make_cpu_ops(ComputePool& pool) {
  return cpu::make_cpu_ops(pool, cpu::select_isa());
}

}  // namespace minisgl
