#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace minisgl::cpu {

/// A matrix [n, k] packed for the CPU: the same layout for every instruction set.
///
/// Panels of 32 output columns (rows of the matrix), the last one padded with zeros; inside a panel k is the outer dimension: 32
/// consecutive values are one k of the panel's 32 columns. float32 keeps the columns in order. bfloat16 stores column c and column c + 16
/// in one 32-bit word (c < 16; c in the lower half), so that one load widens to two vectors by a shift and a mask. A panel is
/// contiguous and a slice of k is a contiguous part of it.
class CpuLinearWeight final : public LinearWeight {
 public:
  static constexpr int64_t kPanelColumns = 32;

  /// Zeros. `dtype` float32 or bfloat16; `k_slices` >= 1 divides k.
  CpuLinearWeight(int64_t n, int64_t k, DType dtype, int k_slices);

  size_t bytes() const override { return buffer_.bytes(); }
  int64_t panels() const { return (n() + kPanelColumns - 1) / kPanelColumns; }
  size_t panel_bytes() const { return static_cast<size_t>(kPanelColumns * k()) * dtype_size(dtype()); }
  void* panel(int64_t index) const { return static_cast<char*>(buffer_.data()) + static_cast<size_t>(index) * panel_bytes(); }

  /// Writes rows [row_begin, row_begin + rows.size(0)) from `rows` [count, k] float32 or bfloat16, any row stride; float32 is rounded to
  /// nearest even for a bfloat16 matrix. Calls for different rows may run at the same time.
  void write_rows(int64_t row_begin, const Tensor& rows);
  /// out[0, k) = row `row`, widened to float32.
  void read_row(int64_t row, float* out) const;
  /// The same as bfloat16, rounded to nearest even.
  void read_row(int64_t row, BFloat16* out) const;

 private:
  Buffer buffer_;
};

}  // namespace minisgl::cpu
