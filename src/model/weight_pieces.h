#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// The host memory through which a matrix is filled piece by piece: whole rows, at most 4 MiB or one row.
class PieceBuffer {
 public:
  /// Calls fill(row_begin, rows) for consecutive pieces of a [row_count, weight.k()] matrix in the dtype of `weight`. `rows` [count, k] is
  /// uninitialised memory of this buffer.
  template <typename Fill>
  void for_each(const LinearWeight& weight, int64_t row_count, const Fill& fill) {
    const auto row_bytes = weight.k() * static_cast<int64_t>(dtype_size(weight.dtype()));
    // A multiple of 64 rows where possible, so that pieces end where packed blocks do.
    int64_t piece_rows = std::max(kPieceBytes / row_bytes, int64_t{1});
    if (piece_rows > 64) piece_rows -= piece_rows % 64;
    piece_rows = std::min(piece_rows, row_count);
    const auto bytes = static_cast<size_t>(piece_rows * row_bytes);
    if (buffer_.bytes() < bytes) buffer_ = Buffer(Device{}, std::max(bytes, static_cast<size_t>(kPieceBytes)));
    for (int64_t begin = 0; begin < row_count; begin += piece_rows) {
      const int64_t count = std::min(piece_rows, row_count - begin);
      fill(begin, Tensor(buffer_.data(), weight.dtype(), {count, weight.k()}));
    }
  }

 private:
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;
  Buffer buffer_;
};

}  // namespace minisgl
