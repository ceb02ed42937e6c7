#include <algorithm>
#include <functional>
#include <limits>

#include "ops/cpu/kernels.h"
#include "ops/cpu_ops_fixture.h"

namespace minisgl {
namespace {

using CpuLayers = CpuOpsTest;
MINISGL_EACH_ISA(CpuLayers);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const cpu::Kernels& kernels_of(cpu::Isa isa) {
#if defined(__x86_64__)
  if (isa == cpu::Isa::kAvx512) return cpu::avx512::kernels();
  if (isa == cpu::Isa::kAvx2) return cpu::avx2::kernels();
#endif
  return cpu::portable::kernels();
}

/// x / sqrt(mean(x^2) + eps) * weight of n elements.
std::vector<double> rms_norm_reference(const std::function<double(int64_t)>& x, const std::vector<float>& weight, double eps) {
  double squares = 0.0;
  for (size_t i = 0; i < weight.size(); ++i) squares += x(static_cast<int64_t>(i)) * x(static_cast<int64_t>(i));
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
  std::vector<double> out;
  for (size_t i = 0; i < weight.size(); ++i) out.push_back(x(static_cast<int64_t>(i)) * inverse * static_cast<double>(weight[i]));
  return out;
}

TEST_P(CpuLayers, ExpIsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x, y;
  for (float value = -86.9f; value < 88.7f; value += 0.0013f) x.push_back(value);
  for (float value = -0.01f; value < 0.01f; value += 0.0000137f) x.push_back(value);
  y.resize(x.size());
  kernels_of(GetParam()).exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    const double unit = std::ldexp(1.0, std::ilogb(want) - 23);
    ASSERT_LE(std::abs(static_cast<double>(y[i]) - want), 2.0 * unit) << "exp(" << x[i] << ") = " << y[i];
  }
}

TEST_P(CpuLayers, ExpOfSpecialValues) {
  const std::vector<float> x = {0.0f, -0.0f, -kInfinity, kInfinity, 89.0f, -86.91f, -1e30f, 1e30f, kNan};
  const std::vector<float> want = {1.0f, 1.0f, 0.0f, kInfinity, kInfinity, 0.0f, 0.0f, kInfinity, kNan};
  std::vector<float> y(x.size());
  kernels_of(GetParam()).exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(y[i] == want[i] || (std::isnan(y[i]) && std::isnan(want[i]))) << "exp(" << x[i] << ") = " << y[i];
}

TEST_P(CpuLayers, ExpBitsDoNotDependOnThePlaceInARow) {
  const std::vector<float> x = random_vector(67, 1, 5.0f);
  for (const float value : {0.3f, -3.7f, 17.1f}) {
    std::vector<float> alone(1);
    kernels_of(GetParam()).exp(&value, 1, alone.data());
    for (size_t place = 0; place < x.size(); ++place) {
      std::vector<float> row = x, y(x.size());
      row[place] = value;
      kernels_of(GetParam()).exp(row.data(), static_cast<int64_t>(row.size()), y.data());
      ASSERT_EQ(std::bit_cast<uint32_t>(y[place]), std::bit_cast<uint32_t>(alone[0])) << "place " << place;
    }
  }
}

TEST_P(CpuLayers, RmsNormMatchesDoublePrecision) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t n : {1, 7, 64, 65, 576, 1025}) {
      for (const int64_t padding : {0, 3}) {
        Matrix x(dtype, 3, n, padding), out(dtype, 3, n, 2 * padding);
        x.fill(static_cast<uint64_t>(n));
        std::vector<float> weight = random_vector(n, 2);
        ops->rms_norm(x.view, vector_view(weight), 1e-5f, out.view);
        for (int64_t t = 0; t < 3; ++t) {
          const std::vector<double> want = rms_norm_reference([&](int64_t i) { return element(x.view, t, i); }, weight, 1e-5f);
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_TRUE(close_to(element(out.view, t, i), want[static_cast<size_t>(i)], dtype, 1e-6, 1e-30))
                << "n " << n << " element " << i;
          }
        }
        Matrix in_place(x);
        ops->rms_norm(in_place.view, vector_view(weight), 1e-5f, in_place.view);
        ASSERT_EQ(bits_of(in_place.view), bits_of(out.view));
      }
    }
  }
}

TEST_P(CpuLayers, AddRmsNormUpdatesTheResidualAndNormsWhatWasStored) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t n : {1, 63, 576, 1030}) {
      Matrix x(dtype, 3, n, 1), residual(dtype, 3, n, 2), norm(dtype, 3, n);
      x.fill(3);
      residual.fill(4);
      const Matrix old_residual(residual);
      std::vector<float> weight = random_vector(n, 5);
      const Matrix old_x(x);
      ops->add_rms_norm(x.view, residual.view, vector_view(weight), 1e-6f, x.view);
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t i = 0; i < n; ++i) {
          const double sum = element(old_x.view, t, i) + element(old_residual.view, t, i);
          ASSERT_TRUE(close_to(element(residual.view, t, i), sum, dtype, 1e-7, 0.0));
        }
      }
      ops->rms_norm(residual.view, vector_view(weight), 1e-6f, norm.view);
      ASSERT_EQ(bits_of(x.view), bits_of(norm.view));
    }
  }
}

TEST_P(CpuLayers, HeadRmsNormTouchesOnlyItsHeads) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t dim : {16, 80, 128}) {
      const int64_t heads = 3;
      Matrix qkv(dtype, 5, 6 * dim, 4);
      qkv.fill(6);
      const Matrix old(qkv);
      std::vector<float> weight = random_vector(dim, 7);
      ops->head_rms_norm(qkv.view.columns(dim, heads * dim).split_heads(heads, dim), vector_view(weight), 1e-6f);
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t h = 0; h < 6; ++h) {
          const std::vector<double> want = rms_norm_reference([&](int64_t i) { return element(old.view, t, h * dim + i); }, weight, 1e-6f);
          for (int64_t i = 0; i < dim; ++i) {
            const double got = element(qkv.view, t, h * dim + i);
            if (h >= 1 && h < 1 + heads) {
              ASSERT_TRUE(close_to(got, want[static_cast<size_t>(i)], dtype, 1e-6, 1e-30));
            } else {
              ASSERT_EQ(got, element(old.view, t, h * dim + i));
            }
          }
        }
      }
    }
  }
}

TEST_P(CpuLayers, RopeRotatesHalves) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t dim : {2, 10, 64, 96, 128}) {
      const int64_t heads = 3, tokens = 5, table_rows = 50;
      Matrix x(dtype, tokens, heads * dim, 7), cos_sin(DType::kFloat32, table_rows, dim);
      x.fill(8);
      const Matrix old(x);
      for (int64_t p = 0; p < table_rows; ++p) {
        for (int64_t i = 0; i < dim / 2; ++i) {
          const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
          set_element(cos_sin.view, p * dim + i, static_cast<float>(std::cos(angle)));
          set_element(cos_sin.view, p * dim + dim / 2 + i, static_cast<float>(std::sin(angle)));
        }
      }
      std::vector<int32_t> positions = {49, 0, 3, 3, 17};
      ops->rope(x.view.split_heads(heads, dim), vector_view(positions), cos_sin.view);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < dim / 2; ++i) {
            const double c = element(cos_sin.view, positions[static_cast<size_t>(t)], i);
            const double s = element(cos_sin.view, positions[static_cast<size_t>(t)], dim / 2 + i);
            const double a = element(old.view, t, h * dim + i), b = element(old.view, t, h * dim + dim / 2 + i);
            ASSERT_TRUE(close_to(element(x.view, t, h * dim + i), a * c - b * s, dtype, 1e-6, 1e-6));
            ASSERT_TRUE(close_to(element(x.view, t, h * dim + dim / 2 + i), b * c + a * s, dtype, 1e-6, 1e-6));
          }
        }
      }
    }
  }
}

TEST_P(CpuLayers, SiluAndMulMatchesDoublePrecision) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t n : {1, 15, 64, 333}) {
      Matrix gate_up(dtype, 4, 2 * n, 1), out(dtype, 4, n, 3);
      gate_up.fill(9, 8.0f);
      set_element(gate_up.view, 0, -100.0f);
      set_element(gate_up.view, n - 1, 100.0f);
      ops->silu_and_mul(gate_up.view, out.view);
      for (int64_t t = 0; t < 4; ++t) {
        for (int64_t i = 0; i < n; ++i) {
          const double gate = element(gate_up.view, t, i), up = element(gate_up.view, t, n + i);
          ASSERT_TRUE(close_to(element(out.view, t, i), gate / (1.0 + std::exp(-gate)) * up, dtype, 1e-6, 1e-30)) << "gate " << gate;
        }
      }
    }
  }
}

TEST_P(CpuLayers, EmbeddingConvertsAndLeavesOtherShardsZero) {
  for (const DType table_type : kActivationTypes) {
    for (const DType out_type : kActivationTypes) {
      for (const int64_t hidden : {5, 64, 130}) {
        Matrix table(table_type, 10, hidden, 3), out(out_type, 6, hidden, 1), packed_out(out_type, 6, hidden, 1);
        table.fill(10);
        std::vector<int32_t> ids = {100, 109, 99, 110, 0, 104};
        ops->embedding(table.view, vector_view(ids), out.view, 100);
        for (int64_t t = 0; t < 6; ++t) {
          const int64_t row = ids[static_cast<size_t>(t)] - 100;
          for (int64_t i = 0; i < hidden; ++i) {
            double want = row >= 0 && row < 10 ? element(table.view, row, i) : 0.0;
            if (out_type == DType::kBFloat16) want = static_cast<float>(BFloat16(static_cast<float>(want)));
            ASSERT_EQ(element(out.view, t, i), want);
          }
        }
        const std::unique_ptr<LinearWeight> packed = ops->create_linear_weight(10, hidden, table_type);
        ops->pack_rows(*packed, 0, table.view);
        ops->embedding(*packed, vector_view(ids), packed_out.view, 100);
        ASSERT_EQ(bits_of(packed_out.view), bits_of(out.view));
      }
    }
  }
}

TEST_P(CpuLayers, GatherRowsCopies) {
  for (const DType dtype : kActivationTypes) {
    Matrix x(dtype, 7, 33, 2), out(dtype, 4, 33, 5);
    x.fill(11);
    std::vector<int32_t> rows = {6, 0, 3, 3};
    ops->gather_rows(x.view, vector_view(rows), out.view);
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 33; ++j) ASSERT_EQ(element(out.view, i, j), element(x.view, rows[static_cast<size_t>(i)], j));
    }
  }
}

TEST_P(CpuLayers, StoreKvWritesTheSlotsAndNothingElse) {
  const int64_t pages = 4, page_size = 3, heads = 2, dim = 5, tokens = 4;
  for (const DType activation : kActivationTypes) {
    for (const DType cache : kActivationTypes) {
      OwnedTensor memory(cache, {pages * 2 * heads * page_size * dim});
      for (int64_t i = 0; i < memory.view().size(0); ++i) set_element(memory.view(), i, -1000.0f);
      const KvLayer layer{memory.view().raw(), cache, pages, page_size, heads, dim};
      Matrix kv(activation, tokens, 2 * heads * dim, 3);
      kv.fill(12);
      std::vector<int32_t> slots = {11, 0, 4, 3};
      ops->store_kv(kv.view.columns(0, heads * dim).split_heads(heads, dim),
                    kv.view.columns(heads * dim, heads * dim).split_heads(heads, dim), vector_view(slots), layer);
      for (int64_t slot = 0; slot < pages * page_size; ++slot) {
        const auto token = std::find(slots.begin(), slots.end(), slot) - slots.begin();
        for (int64_t which = 0; which < 2; ++which) {
          for (int64_t h = 0; h < heads; ++h) {
            for (int64_t d = 0; d < dim; ++d) {
              const int64_t offset = (((slot / page_size * 2 + which) * heads + h) * page_size + slot % page_size) * dim + d;
              float want = -1000.0f;
              if (token < tokens) want = static_cast<float>(element(kv.view, token, which * heads * dim + h * dim + d));
              if (cache == DType::kBFloat16) want = static_cast<float>(BFloat16(want));
              ASSERT_EQ(element(memory.view(), offset), static_cast<double>(want)) << "slot " << slot;
            }
          }
        }
      }
    }
  }
}

TEST_P(CpuLayers, OutOfRangeIndicesAreRefused) {
  Matrix x(DType::kFloat32, 4, 8), out(DType::kFloat32, 1, 8);
  x.fill(13);
  std::vector<int32_t> beyond = {4}, negative = {-1};
  EXPECT_ANY_THROW(ops->gather_rows(x.view, vector_view(beyond), out.view));
  EXPECT_ANY_THROW(ops->gather_rows(x.view, vector_view(negative), out.view));
  EXPECT_ANY_THROW(ops->rope(out.view.split_heads(1, 8), vector_view(beyond), x.view));
  OwnedTensor memory(DType::kFloat32, {4 * 2 * 8});
  const KvLayer layer{memory.view().raw(), DType::kFloat32, 1, 4, 1, 8};
  EXPECT_ANY_THROW(ops->store_kv(out.view.split_heads(1, 8), out.view.split_heads(1, 8), vector_view(beyond), layer));
}

/// Many rows at once, over the threshold of the pool, against each row alone.
TEST_P(CpuLayers, BitsDoNotDependOnTheOtherRows) {
  for (const DType dtype : kActivationTypes) {
    const int64_t tokens = 301, n = 130, dim = 26, heads = 5;
    Matrix x(dtype, tokens, n, 3);
    x.fill(14);
    std::vector<float> weight = random_vector(n, 15), head_weight = random_vector(dim, 16);
    Matrix cos_sin(DType::kFloat32, tokens, dim);
    cos_sin.fill(17);
    std::vector<int32_t> positions(static_cast<size_t>(tokens));
    for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>((t * 7) % static_cast<size_t>(tokens));
    using Apply = std::function<void(const Tensor& x, Tensor positions, const Tensor& out)>;
    const Apply operators[] = {
        [&](const Tensor& in, const Tensor&, const Tensor& out) { ops->rms_norm(in, vector_view(weight), 1e-6f, out); },
        [&](const Tensor& in, const Tensor&, const Tensor& out) {
          ops->rms_norm(in, vector_view(weight), 1e-6f, out);
          ops->add_rms_norm(out, out, vector_view(weight), 1e-6f, in);
        },
        [&](const Tensor& in, const Tensor&, const Tensor& out) {
          ops->head_rms_norm(in.split_heads(heads, dim), vector_view(head_weight), 1e-6f);
          ops->silu_and_mul(in, out.columns(0, n / 2));
        },
        [&](const Tensor& in, const Tensor& at, const Tensor& out) {
          ops->rope(in.split_heads(heads, dim), at, cos_sin.view);
          ops->rms_norm(in, vector_view(weight), 1e-6f, out);
        }};
    for (const Apply& apply : operators) {
      Matrix together(x), together_out(dtype, tokens, n), alone(x), alone_out(dtype, tokens, n);
      apply(together.view, vector_view(positions), together_out.view);
      for (int64_t t = 0; t < tokens; ++t) apply(alone.view.rows(t, 1), vector_view(positions).rows(t, 1), alone_out.view.rows(t, 1));
      EXPECT_EQ(bits_of(together.view), bits_of(alone.view));
      EXPECT_EQ(bits_of(together_out.view), bits_of(alone_out.view));
    }
  }
}

}  // namespace
}  // namespace minisgl
