// The packed linear kernel; included once for each instruction set (see simd.h).
//
// Invariant: every output element (of every slice of k) is the chain acc = x[k] * w[k] + acc over ascending k, from zero, in one lane of
// one accumulator. Tiles of any height and width keep that chain, so that any number of rows agrees to the bit with any other.
//
// bfloat16 words are widened by a shift and a mask as they are loaded: from memory for the first tile, from the second-level cache, where
// the panels of a chunk stay, for the tiles after it. A tile of few rows reads several panels side by side, which hides the latency of the
// chains.

#include "ops/cpu/linear_kernel.h"
#include "ops/cpu/simd.h"

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {
namespace {

constexpr int64_t kPanelColumns = 32;
/// The two vectors of a pair hold columns [j * kWidth, ...) and [16 + j * kWidth, ...) of a panel: what the halves of kWidth words widen
/// to.
constexpr int64_t kPairsPerPanel = kPanelColumns / (2 * kWidth);
/// How far ahead of its use a streamed weight is fetched.
constexpr int64_t kPrefetchBytes = 2048;

// As many accumulators as the registers hold beside one pair of weights and one or two elements of x.
#if defined(__AVX512F__)
constexpr int kTileRows = 14;
constexpr int pairs_at_once(int rows) {
  return rows <= 3 ? 4 : rows <= 6 ? 2 : 1;
}
#else
constexpr int kTileRows = 6;
constexpr int pairs_at_once(int rows) {
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}
#endif

/// Partial sums of the slices wait in slots until they are joined: slot i holds the sum of 2^i slices, as the digits of a binary counter.
/// Slice s is added to the slots of the ones at the end of s; the last slice takes in all that wait. That is the balanced tree with an odd
/// one carried up. The slot of the lowest zero of s is free, so it holds the accumulators of slice s meanwhile.
MINISGL_INLINE int slot_of_slice(int32_t slice) {
  return __builtin_ctz(~static_cast<uint32_t>(slice));
}

struct Tile {
  const float* x;         ///< [k][rows]
  const char* weight;     ///< the panel of the first pair, at the first k
  int64_t panel_bytes;    ///< from one panel to the next
  int64_t first_pair;     ///< in that panel
  int64_t k;              ///< how many
  float* sums;            ///< [pairs][kTileRows][2 * kWidth], in the slot of this slice
  int64_t slot_floats;    ///< from one slot to the next
  int slot;               ///< of this slice
  uint32_t joined_slots;  ///< a bit for each slot that is added when the chain is done
};

template <bool kBf16>
MINISGL_INLINE void load_pair(const char* weight, V& low, V& high) {
  __builtin_prefetch(weight + kPrefetchBytes);
  if constexpr (!kBf16) __builtin_prefetch(weight + kPrefetchBytes + kPanelColumns / 2 * 4);
  if constexpr (kBf16) {
    load_bf16_pairs(reinterpret_cast<const uint32_t*>(weight), low, high);
  } else {
    low = load(reinterpret_cast<const float*>(weight));
    high = load(reinterpret_cast<const float*>(weight) + kPanelColumns / 2);
  }
}

template <int kRows, int kPairs, bool kBf16>
__attribute__((noinline)) void run_tile(const Tile& tile) {
  constexpr int64_t kStepBytes = kPanelColumns * (kBf16 ? 2 : 4);
  const char* weight[kPairs];
  V sum[kPairs][kRows][2];
#pragma GCC unroll 16
  for (int p = 0; p < kPairs; ++p) {
    const int64_t pair = tile.first_pair + p;
    weight[p] = tile.weight + pair / kPairsPerPanel * tile.panel_bytes + pair % kPairsPerPanel * kWidth * 4;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sum[p][r][0] = sum[p][r][1] = zero();
  }

  const float* x = tile.x;
  for (int64_t k = 0; k < tile.k; ++k, x += kRows) {
    if constexpr (kPairs == 1) {
      V low, high;
      load_pair<kBf16>(weight[0], low, high);
      weight[0] += kStepBytes;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const V value = broadcast(x[r]);
        sum[0][r][0] = fmadd(value, low, sum[0][r][0]);
        sum[0][r][1] = fmadd(value, high, sum[0][r][1]);
      }
    } else {
      V value[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) value[r] = broadcast(x[r]);
#pragma GCC unroll 16
      for (int p = 0; p < kPairs; ++p) {
        V low, high;
        load_pair<kBf16>(weight[p], low, high);
        weight[p] += kStepBytes;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          sum[p][r][0] = fmadd(value[r], low, sum[p][r][0]);
          sum[p][r][1] = fmadd(value[r], high, sum[p][r][1]);
        }
      }
    }
  }

  for (uint32_t slots = tile.joined_slots; slots != 0; slots &= slots - 1) {
    const float* slot = tile.sums + (__builtin_ctz(slots) - tile.slot) * tile.slot_floats;
#pragma GCC unroll 16
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const float* from = slot + (p * kTileRows + r) * 2 * kWidth;
        sum[p][r][0] = add(load(from), sum[p][r][0]);
        sum[p][r][1] = add(load(from + kWidth), sum[p][r][1]);
      }
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* to = tile.sums + (p * kTileRows + r) * 2 * kWidth;
      store(to, sum[p][r][0]);
      store(to + kWidth, sum[p][r][1]);
    }
  }
}

/// run_tile for `rows` in [1, kRows].
template <int kRows, bool kBf16, bool kSideBySide>
MINISGL_INLINE void run_tile_of(int64_t rows, const Tile& tile) {
  if (rows == kRows) {
    run_tile<kRows, kSideBySide ? pairs_at_once(kRows) : 1, kBf16>(tile);
  } else if constexpr (kRows > 1) {
    run_tile_of<kRows - 1, kBf16, kSideBySide>(rows, tile);
  }
}

/// Stores up to kWidth columns of a row.
MINISGL_INLINE void store_columns(const LinearJob& job, int64_t offset, int64_t column, V sum) {
  const int64_t count = job.n - column;
  if (count <= 0) return;
  const bool whole = count >= kWidth;
  if (job.join && job.bias != nullptr) {
    const float* bias = job.bias + column;
    sum = add(sum, whole ? load(bias) : load_first(bias, count));
  }
  if (job.out_bf16) {
    uint16_t* out = static_cast<uint16_t*>(job.out) + offset + column;
    whole ? store_bf16(out, sum) : store_bf16_first(out, sum, count);
  } else {
    float* out = static_cast<float*>(job.out) + offset + column;
    whole ? store(out, sum) : store_first(out, sum, count);
  }
}

/// Writes the finished sums of one pair.
MINISGL_INLINE void store_pair(const LinearJob& job, int32_t slice, int64_t row, int64_t rows, int64_t first_column, const float* sums) {
  const int64_t offset = job.join ? 0 : slice * job.out_slice_stride;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row_offset = offset + (row + r) * job.out_row_stride;
    store_columns(job, row_offset, first_column, load(sums + r * 2 * kWidth));
    store_columns(job, row_offset, first_column + kPanelColumns / 2, load(sums + r * 2 * kWidth + kWidth));
  }
}

/// Slots for kMaxSlices slices.
constexpr int kMaxSlots = 7;
static_assert(kMaxSlices < (1 << kMaxSlots));
/// Floats of the sums of one pair.
constexpr int64_t kPairFloats = kTileRows * 2 * kWidth;

/// The slot of a slice, and which ones it is joined with.
MINISGL_INLINE void set_slice(const LinearJob& job, int32_t slice, Tile& tile) {
  tile.slot = job.join ? slot_of_slice(slice) : 0;
  const bool last = slice == job.k_slices - 1;
  const auto bits = static_cast<uint32_t>(slice);
  tile.joined_slots = !job.join ? 0 : last ? bits : bits & ((1u << tile.slot) - 1u);
}

template <bool kBf16>
MINISGL_INLINE void run_of(const LinearJob& job, int64_t panel_begin, int64_t panel_end, int64_t tile_begin, int64_t tile_end) {
  constexpr int64_t kStepBytes = kPanelColumns * (kBf16 ? 2 : 4);
  constexpr int64_t kSlotFloats = pairs_at_once(1) * kPairFloats;
  alignas(64) float sums[kMaxSlots * kSlotFloats];
  const int64_t slice_k = job.k / job.k_slices;
  // Pairs are counted through all panels.
  const int64_t pair_end = panel_end * kPairsPerPanel;
  Tile tile = {};
  tile.panel_bytes = job.k * kStepBytes;
  tile.k = slice_k;
  tile.slot_floats = kSlotFloats;
  for (int64_t t = tile_begin; t < tile_end; ++t) {
    const int64_t row = job.row_tiles.begin(t);
    const int64_t rows = job.row_tiles.size(t);
    const int64_t side_by_side = pairs_at_once(static_cast<int>(rows));
    for (int64_t pair = panel_begin * kPairsPerPanel; pair < pair_end;) {
      const int64_t count = pair_end - pair >= side_by_side ? side_by_side : 1;
      tile.first_pair = pair % kPairsPerPanel;
      for (int32_t slice = 0; slice < job.k_slices; ++slice) {
        set_slice(job, slice, tile);
        tile.sums = sums + tile.slot * kSlotFloats;
        tile.x = job.x + row * job.k + slice * slice_k * rows;
        tile.weight = static_cast<const char*>(job.panels) + pair / kPairsPerPanel * tile.panel_bytes + slice * slice_k * kStepBytes;
        if (count > 1) {
          run_tile_of<kTileRows, kBf16, true>(rows, tile);
        } else {
          run_tile_of<kTileRows, kBf16, false>(rows, tile);
        }
        if (job.join && slice != job.k_slices - 1) continue;
        for (int64_t p = 0; p < count; ++p) {
          const int64_t column = (pair + p) / kPairsPerPanel * kPanelColumns + (pair + p) % kPairsPerPanel * kWidth;
          store_pair(job, slice, row, rows, column, tile.sums + p * kPairFloats);
        }
      }
      pair += count;
    }
  }
}

void run(const LinearJob& job, int64_t panel_begin, int64_t panel_end, int64_t tile_begin, int64_t tile_end) {
  if (job.weight_bf16) {
    run_of<true>(job, panel_begin, panel_end, tile_begin, tile_end);
  } else {
    run_of<false>(job, panel_begin, panel_end, tile_begin, tile_end);
  }
}

int64_t panels_at_once(int64_t rows) {
  return (pairs_at_once(static_cast<int>(rows)) + kPairsPerPanel - 1) / kPairsPerPanel;
}

void pack_x(const void* x, bool bf16, int64_t row_stride, int64_t rows, int64_t k, float* out) {
  if (bf16) {
    const auto* from = static_cast<const uint16_t*>(x);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t r = 0; r < rows; ++r) out[i * rows + r] = float_from_bf16(from[r * row_stride + i]);
    }
  } else {
    const auto* from = static_cast<const float*>(x);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t r = 0; r < rows; ++r) out[i * rows + r] = from[r * row_stride + i];
    }
  }
}

}  // namespace

const LinearKernel kLinearKernel = {kTileRows, panels_at_once, pack_x, run};

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
