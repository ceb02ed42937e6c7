#include "ops/cpu/linear.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/cpu/linear_kernel.h"

namespace minisgl::cpu {

namespace {

/// Rows that pass over a panel together; more rows take several rounds. Bounds the scratch memory.
constexpr int64_t kBlockRows = 512;
/// Weight bytes of one chunk of work: long enough to stream, short enough to balance the threads and to stay in a second-level cache while
/// the tiles of x pass over them.
constexpr int64_t kChunkBytes = int64_t{256} << 10;
/// Chunks per thread that balance well.
constexpr int64_t kChunksPerThread = 4;
/// Elements of x below which packing is not worth a job for the pool.
constexpr int64_t kInlinePackElements = 16384;

const LinearKernel& kernel_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return avx512::kLinearKernel;
    case Isa::kAvx2:
      return avx2::kLinearKernel;
#endif
    default:
      return portable::kLinearKernel;
  }
}

/// Memory of a thread that grows to the most that was asked for and is kept.
class Scratch {
 public:
  float* reserve(int64_t floats) {
    const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
    if (bytes > buffer_.bytes()) buffer_ = Buffer(Device{}, bytes);
    return static_cast<float*>(buffer_.data());
  }

 private:
  Buffer buffer_;
};

thread_local Scratch packed_x;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

void check_operands(const Tensor& x, const CpuLinearWeight& weight, const Tensor& bias) {
  MINISGL_CHECK(x.shape().rank() == 2 && x.size(1) == weight.k() && is_activation(x.dtype()), "x {} of {}, weight [{}, {}]",
                x.shape().to_string(), dtype_name(x.dtype()), weight.n(), weight.k());
  MINISGL_CHECK(weight.k_slices() <= kMaxSlices, "{} slices", weight.k_slices());
  MINISGL_CHECK(bias.empty() || (bias.dtype() == DType::kFloat32 && bias.shape() == Shape{weight.n()}), "bias {} of {} for n {}",
                bias.shape().to_string(), dtype_name(bias.dtype()), weight.n());
}

/// x as tiles of float32, each [k][rows of the tile].
const float* pack_x(ComputePool& pool, const LinearKernel& kernel, const Tensor& x, const RowTiles& tiles) {
  const int64_t k = x.size(1);
  float* packed = packed_x.reserve(tiles.rows * k);
  const bool bf16 = x.dtype() == DType::kBFloat16;
  const auto pack = [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tiles.begin(tile);
      kernel.pack_x(x.rows(row, tiles.size(tile)).raw(), bf16, x.stride(0), tiles.size(tile), k, packed + row * k);
    }
  };
  if (tiles.rows * k <= kInlinePackElements) {
    pack(0, tiles.tiles, 0);
  } else {
    pool.parallel_for(tiles.tiles, ceil_div(tiles.tiles, pool.threads() * kChunksPerThread), pack);
  }
  return packed;
}

void run_job(ComputePool& pool, const LinearKernel& kernel, const CpuLinearWeight& weight, const LinearJob& job) {
  const int64_t panels = weight.panels();
  const int64_t tiles = job.row_tiles.tiles;
  const int64_t at_once = kernel.panels_at_once(job.row_tiles.size(0));
  const int64_t streamed = std::max<int64_t>(1, kChunkBytes / static_cast<int64_t>(weight.panel_bytes()));
  const int64_t group = std::min(ceil_div(streamed, at_once) * at_once, ceil_div(panels, pool.threads()));
  const int64_t groups = ceil_div(panels, group);
  // Few columns and many rows: the rows are split as well.
  const RowTiles parts = {tiles, std::min(tiles, ceil_div(pool.threads() * kChunksPerThread, groups))};
  pool.parallel_for(groups * parts.tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t panel = chunk / parts.tiles * group;
      const int64_t tile = parts.begin(chunk % parts.tiles);
      kernel.run(job, panel, std::min(panels, panel + group), tile, tile + parts.size(chunk % parts.tiles));
    }
  });
}

/// `out` is [rows, n], or [k_slices, rows, n] if not `join`.
void run_linear(ComputePool& pool, Isa isa, const Tensor& x, const CpuLinearWeight& weight, const Tensor& bias, const Tensor& out,
                bool join) {
  const LinearKernel& kernel = kernel_of(isa);
  const int64_t rows = x.size(0);
  for (int64_t row = 0; row < rows; row += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - row);
    const RowTiles tiles = {count, ceil_div(count, kernel.tile_rows)};
    LinearJob job = {};
    job.panels = weight.panel(0);
    job.n = weight.n();
    job.k = weight.k();
    job.k_slices = weight.k_slices();
    job.weight_bf16 = weight.dtype() == DType::kBFloat16;
    job.x = pack_x(pool, kernel, x.rows(row, count), tiles);
    job.row_tiles = tiles;
    job.join = join;
    job.bias = bias.empty() ? nullptr : bias.data<float>();
    job.out_bf16 = out.dtype() == DType::kBFloat16;
    job.out_row_stride = join ? out.stride(0) : out.stride(1);
    job.out_slice_stride = join ? 0 : out.stride(0);
    job.out = static_cast<char*>(out.raw()) + row * job.out_row_stride * static_cast<int64_t>(dtype_size(out.dtype()));
    run_job(pool, kernel, weight, job);
  }
}

}  // namespace

void linear(ComputePool& pool, Isa isa, const Tensor& x, const CpuLinearWeight& weight, const Tensor& bias, const Tensor& out) {
  check_operands(x, weight, bias);
  MINISGL_CHECK(out.shape() == Shape({x.size(0), weight.n()}) && is_activation(out.dtype()), "out {} of {} for {} rows, n {}",
                out.shape().to_string(), dtype_name(out.dtype()), x.size(0), weight.n());
  run_linear(pool, isa, x, weight, bias, out, true);
}

void linear_slices(ComputePool& pool, Isa isa, const Tensor& x, const CpuLinearWeight& weight, const Tensor& out) {
  check_operands(x, weight, {});
  MINISGL_CHECK(out.shape() == Shape({weight.k_slices(), x.size(0), weight.n()}) && out.dtype() == DType::kFloat32 && out.is_contiguous(),
                "out {} of {} for {} slices, {} rows, n {}", out.shape().to_string(), dtype_name(out.dtype()), weight.k_slices(), x.size(0),
                weight.n());
  run_linear(pool, isa, x, weight, {}, out, false);
}

void sum_slices(ComputePool& pool, const Tensor& slices, const Tensor& bias, const Tensor& out) {
  MINISGL_CHECK(slices.shape().rank() == 3 && slices.dtype() == DType::kFloat32 && slices.is_contiguous(), "slices {} of {}",
                slices.shape().to_string(), dtype_name(slices.dtype()));
  const int64_t count = slices.size(0);
  const int64_t rows = slices.size(1);
  const int64_t n = slices.size(2);
  MINISGL_CHECK(count >= 1 && out.shape() == Shape({rows, n}) && is_activation(out.dtype()), "slices {}, out {} of {}",
                slices.shape().to_string(), out.shape().to_string(), dtype_name(out.dtype()));
  MINISGL_CHECK(bias.empty() || (bias.dtype() == DType::kFloat32 && bias.shape() == Shape{n}), "bias {} for n {}", bias.shape().to_string(),
                n);
  MINISGL_CHECK(count <= kMaxSlices, "{} slices", count);
  const float* addend = bias.empty() ? nullptr : bias.data<float>();
  const int64_t row_grain = std::max<int64_t>(1, kInlinePackElements / (count * n));
  pool.parallel_for(rows, row_grain, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kColumns = 64;
    std::array<std::array<float, kColumns>, kMaxSlices> terms;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t first = 0; first < n; first += kColumns) {
        const int64_t width = std::min(kColumns, n - first);
        for (int64_t s = 0; s < count; ++s) {
          std::copy_n(slices.data<float>() + (s * rows + row) * n + first, width, terms[static_cast<size_t>(s)].begin());
        }
        // One level of the tree after another; an odd one out moves up as it is.
        for (int64_t left = count; left > 1; left = (left + 1) / 2) {
          for (int64_t pair = 0; pair < left / 2; ++pair) {
            for (size_t c = 0; c < static_cast<size_t>(width); ++c) {
              terms[static_cast<size_t>(pair)][c] = terms[static_cast<size_t>(2 * pair)][c] + terms[static_cast<size_t>(2 * pair + 1)][c];
            }
          }
          if (left % 2 != 0) terms[static_cast<size_t>(left / 2)] = terms[static_cast<size_t>(left - 1)];
        }
        for (int64_t c = 0; c < width; ++c) {
          float value = terms[0][static_cast<size_t>(c)];
          if (addend != nullptr) value += addend[first + c];
          const int64_t index = row * out.stride(0) + first + c;
          if (out.dtype() == DType::kBFloat16) {
            out.data<BFloat16>()[index] = BFloat16(value);
          } else {
            out.data<float>()[index] = value;
          }
        }
      }
    }
  });
}

void pack_rows(ComputePool& pool, CpuLinearWeight& weight, int64_t row_begin, const Tensor& rows) {
  // Chunks end where panels end, so that no two threads write one cache line.
  constexpr int64_t kColumns = CpuLinearWeight::kPanelColumns;
  const int64_t row_end = row_begin + rows.size(0);
  const int64_t first_panel = row_begin / kColumns;
  pool.parallel_for(ceil_div(row_end, kColumns) - first_panel, 1, [&](int64_t begin, int64_t end, int) {
    const int64_t from = std::max(row_begin, (first_panel + begin) * kColumns);
    const int64_t to = std::min(row_end, (first_panel + end) * kColumns);
    weight.write_rows(from, rows.rows(from - row_begin, to - from));
  });
}

}  // namespace minisgl::cpu
