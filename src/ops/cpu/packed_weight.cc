#include "ops/cpu/packed_weight.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace minisgl::cpu {

namespace {

constexpr int64_t kColumns = CpuLinearWeight::kPanelColumns;

/// Where column `column` of a panel stands among the 32 values of one k.
int64_t place_of_column(DType dtype, int64_t column) {
  if (dtype == DType::kFloat32) return column;
  return column % 16 * 2 + column / 16;
}

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else {
    return To(static_cast<float>(value));
  }
}

/// Rows [0, count) of `rows` become the columns from `first_column` of one panel.
template <typename Weight, typename Row>
void write_panel(Weight* panel, DType dtype, int64_t k, int64_t first_column, const Row* rows, int64_t row_stride, int64_t count) {
  // Blocks of k, so that the lines of a block stay in the cache while one row after another is scattered over them.
  constexpr int64_t kBlock = 128;
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t end = std::min(k, begin + kBlock);
    for (int64_t row = 0; row < count; ++row) {
      Weight* to = panel + place_of_column(dtype, first_column + row);
      const Row* from = rows + row * row_stride;
      for (int64_t i = begin; i < end; ++i) to[i * kColumns] = convert<Weight>(from[i]);
    }
  }
}

template <typename Weight, typename Out>
void read_column(const Weight* panel, DType dtype, int64_t k, int64_t column, Out* out) {
  const Weight* from = panel + place_of_column(dtype, column);
  for (int64_t i = 0; i < k; ++i) out[i] = convert<Out>(from[i * kColumns]);
}

size_t packed_bytes(int64_t n, int64_t k, DType dtype, int k_slices) {
  MINISGL_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, "a packed weight of {}", dtype_name(dtype));
  MINISGL_CHECK(n > 0 && k > 0 && k_slices > 0 && k % k_slices == 0, "n {}, k {}, k_slices {}", n, k, k_slices);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 8;
  if (n > kMax - kColumns || k > kMax / (n + kColumns)) fail(ErrorKind::kOutOfMemory, "a weight of {} x {} elements is too large", n, k);
  return static_cast<size_t>((n + kColumns - 1) / kColumns * kColumns * k) * dtype_size(dtype);
}

}  // namespace

CpuLinearWeight::CpuLinearWeight(int64_t n, int64_t k, DType dtype, int k_slices)
    : LinearWeight(n, k, dtype, k_slices), buffer_(Device{}, packed_bytes(n, k, dtype, k_slices)) {}

void CpuLinearWeight::write_rows(int64_t row_begin, const Tensor& rows) {
  MINISGL_CHECK(rows.shape().rank() == 2 && rows.size(1) == k(), "rows {} of a weight [{}, {}]", rows.shape().to_string(), n(), k());
  MINISGL_CHECK(row_begin >= 0 && row_begin <= n() - rows.size(0), "{} rows from {} of {}", rows.size(0), row_begin, n());
  MINISGL_CHECK(rows.dtype() == DType::kFloat32 || rows.dtype() == DType::kBFloat16, "rows of {}", dtype_name(rows.dtype()));
  const int64_t row_end = row_begin + rows.size(0);
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t column = row % kColumns;
    const int64_t count = std::min(kColumns - column, row_end - row);
    void* to = panel(row / kColumns);
    const Tensor from = rows.rows(row - row_begin, count);
    const auto write = [&]<typename Weight, typename Row>(Weight* weight, const Row* first) {
      write_panel(weight, dtype(), k(), column, first, from.stride(0), count);
    };
    if (dtype() == DType::kFloat32 && from.dtype() == DType::kFloat32) write(static_cast<float*>(to), from.data<float>());
    if (dtype() == DType::kFloat32 && from.dtype() == DType::kBFloat16) write(static_cast<float*>(to), from.data<BFloat16>());
    if (dtype() == DType::kBFloat16 && from.dtype() == DType::kFloat32) write(static_cast<BFloat16*>(to), from.data<float>());
    if (dtype() == DType::kBFloat16 && from.dtype() == DType::kBFloat16) write(static_cast<BFloat16*>(to), from.data<BFloat16>());
    row += count;
  }
}

void CpuLinearWeight::read_row(int64_t row, float* out) const {
  MINISGL_CHECK(row >= 0 && row < n(), "row {} of {}", row, n());
  const void* from = panel(row / kColumns);
  if (dtype() == DType::kFloat32) {
    read_column(static_cast<const float*>(from), dtype(), k(), row % kColumns, out);
  } else {
    read_column(static_cast<const BFloat16*>(from), dtype(), k(), row % kColumns, out);
  }
}

void CpuLinearWeight::read_row(int64_t row, BFloat16* out) const {
  MINISGL_CHECK(row >= 0 && row < n(), "row {} of {}", row, n());
  const void* from = panel(row / kColumns);
  if (dtype() == DType::kFloat32) {
    read_column(static_cast<const float*>(from), dtype(), k(), row % kColumns, out);
  } else {
    read_column(static_cast<const BFloat16*>(from), dtype(), k(), row % kColumns, out);
  }
}

}  // namespace minisgl::cpu
