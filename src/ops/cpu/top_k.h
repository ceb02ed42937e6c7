#pragma once

#include <cstdint>

namespace minisgl::cpu {

/// The k largest of values[0, n), largest first, lowest index first on ties: ids[0, k) and top[0, k). 1 <= k <= n < 2^31. NaN ranks as
/// minus infinity. O(n + k log k log n) for values in random order, no memory of its own.
void top_k(const float* values, int64_t n, int64_t k, int32_t* ids, float* top);

}  // namespace minisgl::cpu
