#include "ops/cpu/top_k.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace minisgl::cpu {

void top_k(const float* values, int64_t n, int64_t k, int32_t* ids, float* top) {
  const auto rank = [values](int32_t id) {
    const float value = values[id];
    return value == value ? value : -std::numeric_limits<float>::infinity();
  };
  const auto better = [rank](int32_t a, int32_t b) { return rank(a) > rank(b) || (rank(a) == rank(b) && a < b); };
  // `ids` is a heap of the best so far with the worst of them in front. Ids come in ascending order, so a tie never displaces.
  std::iota(ids, ids + k, 0);
  std::make_heap(ids, ids + k, better);
  float threshold = rank(ids[0]);
  for (int64_t i = k; i < n; ++i) {
    if (!(values[i] > threshold)) continue;
    std::pop_heap(ids, ids + k, better);
    ids[k - 1] = static_cast<int32_t>(i);
    std::push_heap(ids, ids + k, better);
    threshold = rank(ids[0]);
  }
  std::sort_heap(ids, ids + k, better);
  for (int64_t i = 0; i < k; ++i) top[i] = values[ids[i]];
}

}  // namespace minisgl::cpu
