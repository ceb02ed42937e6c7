#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace minisgl {

inline std::vector<cpu::Isa> available_instruction_sets() {
  std::vector<cpu::Isa> sets;
  for (const cpu::Isa isa : {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (cpu::isa_available(isa)) sets.push_back(isa);
  }
  return sets;
}

/// The operators of one instruction set on a pool of two threads. Instantiate with MINISGL_EACH_ISA.
class CpuOpsTest : public testing::TestWithParam<cpu::Isa> {
 protected:
  ComputePool pool{2};
  std::unique_ptr<Ops> ops = cpu::make_cpu_ops(pool, GetParam());
};

#define MINISGL_EACH_ISA(suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(Isa, suite, testing::ValuesIn(available_instruction_sets()), \
                           [](const testing::TestParamInfo<cpu::Isa>& info) { return std::string(cpu::isa_name(info.param)); })

constexpr DType kActivationTypes[] = {DType::kFloat32, DType::kBFloat16};

inline double element(const Tensor& t, int64_t offset) {
  if (t.dtype() == DType::kFloat32) return t.data<float>()[offset];
  return static_cast<float>(t.data<BFloat16>()[offset]);
}
inline double element(const Tensor& t, int64_t i, int64_t j) {
  return element(t, i * t.stride(0) + j);
}
inline double element(const Tensor& t, int64_t i, int64_t j, int64_t k) {
  return element(t, i * t.stride(0) + j * t.stride(1) + k);
}

inline void set_element(const Tensor& t, int64_t offset, float value) {
  if (t.dtype() == DType::kFloat32) {
    t.data<float>()[offset] = value;
  } else {
    t.data<BFloat16>()[offset] = BFloat16(value);
  }
}

/// A matrix view [rows, columns] whose rows are `padding` elements apart and whose first element is one element past the aligned start.
struct Matrix {
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t padding = 0)
      : memory(dtype, {rows * (columns + padding) + 1}),
        view(static_cast<char*>(memory.view().raw()) + (padding > 0 ? dtype_size(dtype) : 0), dtype, {rows, columns},
             {columns + padding, 1, 0, 0}) {}
  Matrix(const Matrix& other)
      : Matrix(other.view.dtype(), other.view.size(0), other.view.size(1), other.view.stride(0) - other.view.size(1)) {
    std::memcpy(memory.view().raw(), other.memory.view().raw(), other.memory.bytes());
  }
  Matrix(Matrix&&) = default;

  /// Normal numbers; the padding gets NaN, which no operator may read.
  Matrix& fill(uint64_t seed, float scale = 1.0f) {
    for (int64_t i = 0; i < memory.view().size(0); ++i) set_element(memory.view(), i, std::nanf(""));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t i = 0; i < view.size(0); ++i) {
      for (int64_t j = 0; j < view.size(1); ++j) set_element(view, i * view.stride(0) + j, normal(random));
    }
    return *this;
  }

  OwnedTensor memory;
  Tensor view;
};

inline Tensor vector_view(std::vector<float>& values) {
  return Tensor(values.data(), DType::kFloat32, {static_cast<int64_t>(values.size())});
}
inline Tensor vector_view(std::vector<int32_t>& values) {
  return Tensor(values.data(), DType::kInt32, {static_cast<int64_t>(values.size())});
}

inline std::vector<float> random_vector(int64_t n, uint64_t seed, float scale = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

/// |got - want| within `relative` of want plus `absolute`; a bfloat16 result may be half a bfloat16 unit further off.
inline bool close_to(double got, double want, DType dtype, double relative, double absolute) {
  const double rounding = dtype == DType::kBFloat16 ? std::ldexp(1.0, -8) : 0.0;
  return std::abs(got - want) <= (relative + rounding) * std::abs(want) + absolute;
}

/// The bits of a view's elements in row-major order.
inline std::vector<uint32_t> bits_of(const Tensor& t) {
  std::vector<uint32_t> bits;
  for (int64_t i = 0; i < t.size(0); ++i) {
    for (int64_t j = 0; j < (t.shape().rank() > 1 ? t.size(1) : 1); ++j) {
      const int64_t offset = i * t.stride(0) + j;
      bits.push_back(t.dtype() == DType::kBFloat16 ? t.data<BFloat16>()[offset].bits : std::bit_cast<uint32_t>(t.data<float>()[offset]));
    }
  }
  return bits;
}

}  // namespace minisgl
