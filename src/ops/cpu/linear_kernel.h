#pragma once

#include <stdint.h>

#include "ops/cpu/kernels.h"

// What linear.cc asks of the kernel of one instruction set. Plain data only: this header is compiled with every set's flags (see simd.h).

namespace minisgl::cpu {

/// Rows of a block of x are cut into tiles of nearly equal size, so that no tile is left with a few rows: the first `rows % tiles` have one
/// row more.
struct RowTiles {
  int64_t rows;
  int64_t tiles;

  __attribute__((always_inline)) int64_t begin(int64_t tile) const {
    return tile * (rows / tiles) + (tile < rows % tiles ? tile : rows % tiles);
  }
  __attribute__((always_inline)) int64_t size(int64_t tile) const { return rows / tiles + (tile < rows % tiles ? 1 : 0); }
};

struct LinearJob {
  // The weight: panels of 32 columns (packed_weight.h).
  const void* panels;
  int64_t n;
  int64_t k;
  int32_t k_slices;
  bool weight_bf16;

  // Rows of x as float32: tile after tile, each [k][rows of the tile].
  const float* x;
  RowTiles row_tiles;

  // The result: [rows, n] with the slices joined and `bias` (n floats, or null) added; or, if not `join`, [k_slices][rows][n].
  bool join;
  const float* bias;
  void* out;
  bool out_bf16;
  int64_t out_row_stride;
  int64_t out_slice_stride;
};

struct LinearKernel {
  /// The most rows of a tile.
  int64_t tile_rows;
  /// Panels that a tile of `rows` rows reads side by side.
  int64_t (*panels_at_once)(int64_t rows);
  /// Writes `rows` rows of x [rows, k] (bfloat16 if `bf16`) as [k][rows].
  void (*pack_x)(const void* x, bool bf16, int64_t row_stride, int64_t rows, int64_t k, float* out);
  /// Computes the columns of the panels [panel_begin, panel_end) for the tiles [tile_begin, tile_end).
  void (*run)(const LinearJob& job, int64_t panel_begin, int64_t panel_end, int64_t tile_begin, int64_t tile_end);
};

namespace portable {
extern const LinearKernel kLinearKernel;
}
namespace avx2 {
extern const LinearKernel kLinearKernel;
}
namespace avx512 {
extern const LinearKernel kLinearKernel;
}

}  // namespace minisgl::cpu
