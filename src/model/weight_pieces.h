#pragma once

#include <algorithm>
#include <cstdint>

#include "base/compute_pool.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// Fills matrices piece by piece through one buffer: whole rows, at most 4 MiB or one row, so that a load needs little memory beside the
/// weights. Rows are produced and packed on the threads of a pool.
class MatrixFiller {
 public:
  MatrixFiller(Ops& ops, ComputePool& pool) : ops_(ops), pool_(pool) {}

  /// Fills the rows of a slot that is a matrix. `produce(row_begin, rows)` writes rows [row_begin, row_begin + count) of the slot's tensor
  /// to `rows` [count, k], in the dtype of the matrix; it runs on several threads at once. `report(rows_done)` is called after each piece.
  template <typename Produce, typename Report>
  void fill(const WeightSlot& slot, const Produce& produce, const Report& report) {
    LinearWeight& weight = *slot.matrix;
    const int64_t row_count = slot.shape[0];
    const auto row_bytes = weight.k() * static_cast<int64_t>(dtype_size(weight.dtype()));
    // A multiple of 64 rows where possible, so that pieces end where packed blocks do.
    int64_t piece_rows = std::max(kPieceBytes / row_bytes, int64_t{1});
    if (piece_rows > 64) piece_rows -= piece_rows % 64;
    const auto piece_bytes = static_cast<size_t>(piece_rows * row_bytes);
    if (buffer_.bytes() < piece_bytes) buffer_ = Buffer(Device{}, piece_bytes);

    for (int64_t first = 0; first < row_count; first += piece_rows) {
      const Tensor piece(buffer_.data(), weight.dtype(), {std::min(piece_rows, row_count - first), weight.k()});
      pool_.parallel_for(piece.size(0), std::max(kGrainBytes / row_bytes, int64_t{1}),
                         [&](int64_t begin, int64_t end, int) { produce(first + begin, piece.rows(begin, end - begin)); });
      ops_.pack_rows(weight, slot.row_begin + first, piece);
      report(first + piece.size(0));
    }
  }

 private:
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;
  static constexpr int64_t kGrainBytes = int64_t{256} << 10;

  Ops& ops_;
  ComputePool& pool_;
  Buffer buffer_;
};

}  // namespace minisgl
