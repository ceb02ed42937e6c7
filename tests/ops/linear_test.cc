#include "ops/cpu/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace minisgl::cpu {
namespace {

ComputePool& pool(int threads) {
  static ComputePool one(1);
  static ComputePool two(2);
  return threads == 1 ? one : two;
}

/// A matrix whose rows may be further apart than they are long; what lies between holds a marker that nobody may read or write.
class Matrix {
 public:
  static constexpr float kMarker = -12345.0f;

  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t gap = 0)
      : dtype_(dtype),
        rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        memory_(dtype, {std::max<int64_t>(1, rows * (columns + gap))}) {
    for (int64_t i = 0; i < memory_.view().size(0); ++i) set_element(i, kMarker);
  }

  static Matrix random(DType dtype, int64_t rows, int64_t columns, uint32_t seed, int64_t gap = 0) {
    Matrix matrix(dtype, rows, columns, gap);
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> values(-1.0f, 1.0f);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) matrix.set_element(r * matrix.stride_ + c, values(generator));
    }
    return matrix;
  }

  Tensor view() const { return Tensor(memory_.view().raw(), dtype_, {rows_, columns_}, {stride_, 1, 0, 0}); }
  float at(int64_t row, int64_t column) const { return element(row * stride_ + column); }
  bool gaps_untouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = columns_; c < stride_; ++c) {
        if (element(r * stride_ + c) != Matrix(dtype_, 1, 1).element(0)) return false;
      }
    }
    return true;
  }

 private:
  float element(int64_t i) const {
    return dtype_ == DType::kFloat32 ? memory_.view().data<float>()[i] : static_cast<float>(memory_.view().data<BFloat16>()[i]);
  }
  void set_element(int64_t i, float value) {
    if (dtype_ == DType::kFloat32) {
      memory_.view().data<float>()[i] = value;
    } else {
      memory_.view().data<BFloat16>()[i] = BFloat16(value);
    }
  }

  DType dtype_;
  int64_t rows_;
  int64_t columns_;
  int64_t stride_;
  OwnedTensor memory_;
};

CpuLinearWeight packed(const Matrix& matrix, DType dtype, int k_slices = 1) {
  CpuLinearWeight weight(matrix.view().size(0), matrix.view().size(1), dtype, k_slices);
  pack_rows(pool(2), weight, 0, matrix.view());
  return weight;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const size_t row_bytes = static_cast<size_t>(a.size(1)) * dtype_size(a.dtype());
  for (int64_t r = 0; r < a.size(0); ++r) {
    if (std::memcmp(a.rows(r, 1).raw(), b.rows(r, 1).raw(), row_bytes) != 0) return false;
  }
  return true;
}

std::vector<Isa> available_instruction_sets() {
  std::vector<Isa> available;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa_available(isa)) available.push_back(isa);
  }
  return available;
}

class Linear : public ::testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(InstructionSets, Linear, ::testing::ValuesIn(available_instruction_sets()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

/// Compares with sums in double; the error of a float32 chain of k terms is below k * 2^-24 times the sum of the terms' magnitudes.
void expect_near_reference(const Matrix& x, const Matrix& w, DType weight_dtype, const std::vector<float>& bias, const Matrix& out,
                           const std::string& what) {
  const int64_t k = x.view().size(1);
  std::vector<double> weights;
  for (int64_t n = 0; n < w.view().size(0); ++n) {
    for (int64_t i = 0; i < k; ++i) {
      weights.push_back(weight_dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(w.at(n, i))) : w.at(n, i));
    }
  }
  for (int64_t m = 0; m < x.view().size(0); ++m) {
    for (int64_t n = 0; n < w.view().size(0); ++n) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(n)]);
      double magnitude = std::abs(sum);
      for (int64_t i = 0; i < k; ++i) {
        const double term = static_cast<double>(x.at(m, i)) * weights[static_cast<size_t>(n * k + i)];
        sum += term;
        magnitude += std::abs(term);
      }
      double bound = static_cast<double>(k + 10) * 0x1p-23 * magnitude + 1e-30;
      if (out.view().dtype() == DType::kBFloat16) bound += std::abs(sum) * 0x1p-8;
      ASSERT_NEAR(static_cast<double>(out.at(m, n)), sum, bound) << what << " at row " << m << ", column " << n;
    }
  }
}

TEST_P(Linear, AgreesWithADoublePrecisionReference) {
  struct Case {
    int64_t rows, n, k;
    int k_slices;
  };
  const Case cases[] = {{1, 1, 1, 1},     {1, 33, 7, 1},    {2, 31, 64, 1},   {3, 100, 65, 1}, {5, 129, 96, 6},
                        {6, 64, 35, 7},   {7, 17, 40, 8},   {13, 65, 48, 3},  {14, 32, 99, 1}, {15, 95, 100, 4},
                        {29, 160, 21, 1}, {64, 70, 130, 5}, {1, 259, 400, 8}, {33, 36, 600, 2}};
  for (const Case& c : cases) {
    for (const DType weight_dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const DType x_dtype : {DType::kFloat32, DType::kBFloat16}) {
        for (const DType out_dtype : {DType::kFloat32, DType::kBFloat16}) {
          const Matrix x = Matrix::random(x_dtype, c.rows, c.k, 1, 3);
          const Matrix w = Matrix::random(DType::kFloat32, c.n, c.k, 2, 1);
          const CpuLinearWeight weight = packed(w, weight_dtype, c.k_slices);
          const bool with_bias = x_dtype == out_dtype;
          std::vector<float> bias;
          for (int64_t n = 0; with_bias && n < c.n; ++n) bias.push_back(0.25f * static_cast<float>(n % 7) - 0.5f);
          const Tensor bias_view = with_bias ? Tensor(bias.data(), DType::kFloat32, {c.n}) : Tensor();
          const Matrix out(out_dtype, c.rows, c.n, 5);
          linear(pool(2), GetParam(), x.view(), weight, bias_view, out.view());
          const std::string what = fmt::format("rows {}, n {}, k {}, slices {}, weight {}, x {}, out {}, bias {}", c.rows, c.n, c.k,
                                               c.k_slices, dtype_name(weight_dtype), dtype_name(x_dtype), dtype_name(out_dtype), with_bias);
          EXPECT_TRUE(out.gaps_untouched()) << what;
          expect_near_reference(x, w, weight_dtype, bias, out, what);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Linear, BitsDoNotDependOnTheNumberOfRowsOrThreads) {
  constexpr int64_t kRows = 512;
  constexpr int64_t kColumns = 129;  // enough panels for the tiles of few rows to read them side by side
  for (const int64_t k : {64, 576, 1024, 3072}) {
    const Matrix x = Matrix::random(DType::kFloat32, kRows, k, 3);
    const Matrix w = Matrix::random(DType::kFloat32, kColumns, k, 4);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int k_slices : {1, 8}) {
        const CpuLinearWeight weight = packed(w, dtype, k_slices);
        const Matrix all(DType::kFloat32, kRows, kColumns);
        linear(pool(1), GetParam(), x.view(), weight, {}, all.view());
        for (const int threads : {1, 2}) {
          for (const int64_t rows : {1, 2, 3, 8, 64, 512}) {
            if (rows == kRows && threads == 1) continue;  // that is `all`
            // Not the first rows only: the same row must not care where in the batch it stands.
            const int64_t first = kRows - rows;
            const Matrix some(DType::kFloat32, rows, kColumns);
            linear(pool(threads), GetParam(), x.view().rows(first, rows), weight, {}, some.view());
            ASSERT_TRUE(same_bits(some.view(), all.view().rows(first, rows)))
                << rows << " rows, " << threads << " threads, k " << k << ", " << k_slices << " slices, " << dtype_name(dtype);
          }
        }
      }
    }
  }
}

TEST_P(Linear, EveryNumberOfRowsGivesTheSameBits) {
  constexpr int64_t kRows = 70;  // with the widest tiles too, more than share a widened copy
  constexpr int64_t kColumns = 139;
  constexpr int64_t kK = 120;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Matrix x = Matrix::random(DType::kBFloat16, kRows, kK, 5);
    const CpuLinearWeight weight = packed(Matrix::random(DType::kFloat32, kColumns, kK, 6), dtype, 5);
    const Matrix all(DType::kBFloat16, kRows, kColumns);
    linear(pool(2), GetParam(), x.view(), weight, {}, all.view());
    for (int64_t rows = 1; rows < kRows; ++rows) {
      for (const int threads : {1, 2}) {
        const Matrix some(DType::kBFloat16, rows, kColumns);
        linear(pool(threads), GetParam(), x.view().rows(0, rows), weight, {}, some.view());
        ASSERT_TRUE(same_bits(some.view(), all.view().rows(0, rows))) << rows << " rows, " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(Linear, BitsDoNotDependOnTheSplitOfN) {
  constexpr int64_t kColumns = 200;
  for (const int64_t k : {64, 576, 1024, 3072}) {
    const Matrix w = Matrix::random(DType::kFloat32, kColumns, k, 7);
    const CpuLinearWeight whole = packed(w, DType::kBFloat16, 8);
    for (const int64_t rows : {1, 3, 64}) {
      const Matrix x = Matrix::random(DType::kFloat32, rows, k, 8);
      const Matrix expected(DType::kFloat32, rows, kColumns);
      linear(pool(2), GetParam(), x.view(), whole, {}, expected.view());
      for (const int64_t split : {1, 77, 96}) {
        const Matrix joined(DType::kFloat32, rows, kColumns);
        for (const auto& [first, count] : {std::pair{int64_t{0}, split}, std::pair{split, kColumns - split}}) {
          CpuLinearWeight part(count, k, DType::kBFloat16, 8);
          part.write_rows(0, w.view().rows(first, count));
          linear(pool(2), GetParam(), x.view(), part, {}, joined.view().columns(first, count));
        }
        ASSERT_TRUE(same_bits(joined.view(), expected.view())) << "k " << k << ", rows " << rows << ", split at " << split;
      }
    }
  }
}

TEST_P(Linear, SlicesJoinedByTheTreeAreTheLinear) {
  constexpr int64_t kColumns = 77;
  constexpr int64_t kK = 840;
  const Matrix w = Matrix::random(DType::kFloat32, kColumns, kK, 9);
  std::vector<float> bias(kColumns, 0.125f);
  const Tensor bias_view(bias.data(), DType::kFloat32, {kColumns});
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int k_slices : {1, 2, 3, 4, 5, 6, 7, 8}) {
      const CpuLinearWeight weight = packed(w, dtype, k_slices);
      for (const int64_t rows : {1, 4, 50, k_slices == 5 ? 600 : 15}) {  // 600: more than pass over a panel together
        const Matrix x = Matrix::random(DType::kFloat32, rows, kK, 10);
        const OwnedTensor slices(DType::kFloat32, {k_slices, rows, kColumns});
        linear_slices(pool(2), GetParam(), x.view(), weight, slices.view());
        // A slice is a linear of its own over its part of k.
        const int64_t slice_k = kK / k_slices;
        const int64_t last = k_slices - 1;
        const CpuLinearWeight slice_weight = [&] {
          CpuLinearWeight part(kColumns, slice_k, dtype, 1);
          part.write_rows(0, w.view().columns(last * slice_k, slice_k));
          return part;
        }();
        const Matrix slice_out(DType::kFloat32, rows, kColumns);
        linear(pool(1), GetParam(), x.view().columns(last * slice_k, slice_k), slice_weight, {}, slice_out.view());
        const Tensor last_slice(slices.view().data<float>() + last * rows * kColumns, DType::kFloat32, {rows, kColumns});
        ASSERT_TRUE(same_bits(slice_out.view(), last_slice)) << k_slices << " slices, " << rows << " rows";
        for (const DType out_dtype : {DType::kFloat32, DType::kBFloat16}) {
          const Matrix joined(out_dtype, rows, kColumns, 2);
          sum_slices(pool(2), slices.view(), bias_view, joined.view());
          const Matrix direct(out_dtype, rows, kColumns, 3);
          linear(pool(2), GetParam(), x.view(), weight, bias_view, direct.view());
          ASSERT_TRUE(same_bits(joined.view(), direct.view())) << k_slices << " slices, " << rows << " rows, out " << dtype_name(out_dtype);
        }
      }
    }
  }
}

TEST_P(Linear, NotANumberAndInfinityReachTheOutput) {
  const Matrix x = Matrix::random(DType::kFloat32, 2, 16, 11);
  CpuLinearWeight weight(40, 16, DType::kBFloat16, 1);
  Matrix w = Matrix::random(DType::kFloat32, 40, 16, 12);
  w.view().data<float>()[3 * 16 + 5] = std::numeric_limits<float>::quiet_NaN();
  w.view().data<float>()[39 * 16 + 5] = std::numeric_limits<float>::infinity();
  weight.write_rows(0, w.view());
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Matrix out(dtype, 2, 40);
    linear(pool(1), GetParam(), x.view(), weight, {}, out.view());
    EXPECT_TRUE(std::isnan(out.at(1, 3)));
    EXPECT_TRUE(std::isinf(out.at(1, 39)));
    EXPECT_TRUE(std::isfinite(out.at(1, 4)));
  }
}

TEST_P(Linear, NoRowsIsNoWork) {
  const CpuLinearWeight weight = packed(Matrix::random(DType::kFloat32, 40, 16, 12), DType::kFloat32);
  const Matrix x(DType::kFloat32, 0, 16);
  const Matrix out(DType::kFloat32, 0, 40);
  linear(pool(2), GetParam(), x.view(), weight, {}, out.view());
}

TEST(SumSlices, IsABalancedTreeWithAnOddOneCarriedUp) {
  // Powers of two so far apart that the order of the additions shows in the result.
  for (int count = 1; count <= 9; ++count) {
    const OwnedTensor slices(DType::kFloat32, {count, 1, 70});
    std::mt19937 generator(13);
    std::uniform_real_distribution<float> values(-1.0f, 1.0f);
    for (int64_t i = 0; i < slices.view().shape().elements(); ++i) {
      slices.view().data<float>()[i] = std::ldexp(values(generator), static_cast<int>(i % 23));
    }
    const Matrix out(DType::kFloat32, 1, 70);
    sum_slices(pool(1), slices.view(), {}, out.view());
    for (int64_t c = 0; c < 70; ++c) {
      const auto s = [&](int64_t i) { return slices.view().data<float>()[i * 70 + c]; };
      float expected = 0;
      switch (count) {
        case 1:
          expected = s(0);
          break;
        case 2:
          expected = s(0) + s(1);
          break;
        case 3:
          expected = (s(0) + s(1)) + s(2);
          break;
        case 4:
          expected = (s(0) + s(1)) + (s(2) + s(3));
          break;
        case 5:
          expected = ((s(0) + s(1)) + (s(2) + s(3))) + s(4);
          break;
        case 6:
          expected = ((s(0) + s(1)) + (s(2) + s(3))) + (s(4) + s(5));
          break;
        case 7:
          expected = ((s(0) + s(1)) + (s(2) + s(3))) + ((s(4) + s(5)) + s(6));
          break;
        case 8:
          expected = ((s(0) + s(1)) + (s(2) + s(3))) + ((s(4) + s(5)) + (s(6) + s(7)));
          break;
        case 9:
          expected = (((s(0) + s(1)) + (s(2) + s(3))) + ((s(4) + s(5)) + (s(6) + s(7)))) + s(8);
          break;
      }
      ASSERT_EQ(out.at(0, c), expected) << count << " slices, column " << c;
    }
  }
}

TEST(PackedWeight, ReadsBackWhatWasWrittenInAnyOrder) {
  constexpr int64_t kRows = 100;
  constexpr int64_t kK = 300;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const DType from : {DType::kFloat32, DType::kBFloat16}) {
      const Matrix w = Matrix::random(from, kRows, kK, 14, 7);
      CpuLinearWeight weight(kRows, kK, dtype, 1);
      EXPECT_EQ(weight.bytes(), 128 * kK * dtype_size(dtype));
      pack_rows(pool(2), weight, 50, w.view().rows(50, 41));
      pack_rows(pool(2), weight, 0, w.view().rows(0, 50));
      weight.write_rows(99, w.view().rows(99, 1));
      std::vector<float> row(kK);
      std::vector<BFloat16> row_bf16(kK);
      for (int64_t r = 0; r < kRows; ++r) {
        weight.read_row(r, row.data());
        weight.read_row(r, row_bf16.data());
        for (int64_t i = 0; i < kK; ++i) {
          const bool written = r < 91 || r == 99;
          const float value = written ? w.at(r, i) : 0.0f;
          const float expected = dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(value)) : value;
          ASSERT_EQ(row[static_cast<size_t>(i)], expected) << "row " << r << ", k " << i;
          ASSERT_EQ(row_bf16[static_cast<size_t>(i)].bits, BFloat16(expected).bits) << "row " << r << ", k " << i;
        }
      }
    }
  }
}

TEST(PackedWeight, RefusesAnAbsurdSize) {
  EXPECT_THROW(CpuLinearWeight(int64_t{1} << 62, int64_t{1} << 62, DType::kFloat32, 1), Error);
  EXPECT_THROW(CpuLinearWeight(int64_t{1} << 40, int64_t{1} << 22, DType::kFloat32, 1), Error);
}

TEST(InstructionSet, TheEnvironmentChooses) {
  const char* before = std::getenv("MINISGL_CPU_ISA");
  const std::string saved = before == nullptr ? "" : before;
  setenv("MINISGL_CPU_ISA", "portable", 1);
  EXPECT_EQ(select_isa(), Isa::kPortable);
  setenv("MINISGL_CPU_ISA", "avx51", 1);
  try {
    select_isa();
    FAIL() << "an unknown name was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("avx51"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos);
  }
  unsetenv("MINISGL_CPU_ISA");
  EXPECT_TRUE(isa_available(select_isa()));
  if (!saved.empty()) setenv("MINISGL_CPU_ISA", saved.c_str(), 1);
}

}  // namespace
}  // namespace minisgl::cpu
