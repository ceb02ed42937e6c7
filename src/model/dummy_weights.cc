#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "base/compute_pool.h"
#include "model/weight_pieces.h"
#include "model/weights.h"

namespace minisgl {

namespace {

constexpr double kStandardDeviation = 0.02;
constexpr uint64_t kSeed = 0;
constexpr int kQuantiles = 1 << 16;

/// The quantiles of N(0, 0.02) at (i + 0.5) / 65536: a uniform 16-bit number picks one (inverse transform sampling). One 64-bit hash gives
/// four, which is what fills billions of elements in seconds; 16 bits are finer than bfloat16 everywhere but in the far tails.
std::vector<float> normal_quantiles() {
  std::vector<float> table(kQuantiles);
  double x = 0;
  for (int i = kQuantiles / 2; i < kQuantiles; ++i) {
    // Newton's method on the upper tail, which keeps its relative precision, from the quantile before: two steps reach float32.
    const double tail = 1 - (i + 0.5) / kQuantiles;
    for (int step = 0; step < 4; ++step) {
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
      x += (0.5 * std::erfc(x / std::numbers::sqrt2) - tail) / density;
    }
    table[static_cast<size_t>(i)] = static_cast<float>(x * kStandardDeviation);
    table[static_cast<size_t>(kQuantiles - 1 - i)] = -table[static_cast<size_t>(i)];
  }
  return table;
}

/// FNV-1a.
uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter becomes a random number.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t slot_bytes(const WeightSlot& slot) {
  const DType dtype = slot.matrix == nullptr ? DType::kFloat32 : slot.matrix->dtype();
  return slot.shape.elements() * static_cast<int64_t>(dtype_size(dtype));
}

/// Elements [begin, begin + count) of a tensor.
template <typename T>
void fill_normal(const std::vector<float>& quantiles, uint64_t key, int64_t begin, int64_t count, T* out) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<uint64_t>(begin + i);
    if (i == 0 || element % 4 == 0) bits = mix(key + (element / 4 + 1) * 0x9e3779b97f4a7c15u) >> (element % 4 * 16);
    out[i] = static_cast<T>(quantiles[bits & 0xffffu]);
    bits >>= 16;
  }
}

}  // namespace

void fill_dummy_weights(const WeightTable& table, Ops& ops, const LoadProgress& progress) {
  const std::vector<float> quantiles = normal_quantiles();
  int64_t total_bytes = 0;
  for (const WeightSlot& slot : table.slots()) total_bytes += slot_bytes(slot);

  MatrixFiller filler(ops, process_compute_pool());
  int64_t done_bytes = 0;
  for (const WeightSlot& slot : table.slots()) {
    const auto report = [&](int64_t rows_done) {
      if (progress) progress(done_bytes + slot_bytes(slot) / slot.shape[0] * rows_done, total_bytes);
    };
    if (slot.matrix == nullptr) {
      std::fill_n(slot.vector.data<float>(), slot.shape.elements(), slot.dummy_value);
      report(slot.shape[0]);
    } else {
      const uint64_t key = mix(hash_name(slot.name) ^ kSeed);
      const auto produce = [&](int64_t row_begin, const Tensor& rows) {
        const int64_t begin = row_begin * rows.size(1);
        if (rows.dtype() == DType::kBFloat16) {
          fill_normal(quantiles, key, begin, rows.shape().elements(), rows.data<BFloat16>());
        } else {
          fill_normal(quantiles, key, begin, rows.shape().elements(), rows.data<float>());
        }
      };
      filler.fill(slot, produce, report);
    }
    done_bytes += slot_bytes(slot);
  }
}

}  // namespace minisgl
