// Kernel source: softmax, log-softmax and argmax of a row.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

/// The largest element; an unspecified element if x holds NaN.
static float row_max(const float* x, int64_t n) {
  int64_t i = 0;
  V largest = broadcast(x[0]);
  for (; i + kWidth <= n; i += kWidth) largest = max(largest, load(x + i));
  float result = reduce_max(largest);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

static bool holds_nan(const float* x, int64_t n) {
  int64_t i = 0;
  Words unordered = {};
  for (; i + kWidth <= n; i += kWidth) {
    const V v = load(x + i);
    unordered |= reinterpret_cast<Words>(v.v != v.v);
  }
  uint32_t found = 0;
  for (int lane = 0; lane < kWidth; ++lane) found |= unordered[lane];
  for (; i < n; ++i) found |= static_cast<uint32_t>(x[i] != x[i]);
  return found != 0;
}

/// Sum of exp(x - shift); blocks of 64 vectors are summed in float32, the blocks in double.
static double sum_of_exp(const float* x, int64_t n, float shift) {
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += 64 * kWidth) {
    const int64_t end = begin + 64 * kWidth < n ? begin + 64 * kWidth : n;
    V sum = zero();
    for (int64_t i = begin; i < end; i += kWidth) {
      V e = exp(sub(read(x + i, end - i), broadcast(shift)));
      if (end - i < kWidth) {
        float lanes[kWidth];
        store(lanes, e);
        e = load_first(lanes, end - i);
      }
      sum = add(sum, e);
    }
    total += static_cast<double>(reduce_add(sum));
  }
  return total;
}

static void softmax(const float* x, int64_t n, float* out) {
  const float largest = row_max(x, n);
  const V sum = broadcast(static_cast<float>(sum_of_exp(x, n, largest)));
  for (int64_t i = 0; i < n; i += kWidth) write(out + i, div(exp(sub(read(x + i, n - i), broadcast(largest))), sum), n - i);
}

static void log_softmax(const float* x, int64_t n, float* out) {
  const V largest = broadcast(row_max(x, n));
  const V log_sum = broadcast(static_cast<float>(__builtin_log(sum_of_exp(x, n, reduce_max(largest)))));
  for (int64_t i = 0; i < n; i += kWidth) write(out + i, sub(sub(read(x + i, n - i), largest), log_sum), n - i);
}

static int32_t argmax(const float* x, int64_t n) {
  constexpr int64_t kBlock = 1024;
  float largest = 0.0f;
  int64_t block = 0;  // the first that holds the largest element
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    if (holds_nan(x + begin, count)) return -1;
    const float candidate = row_max(x + begin, count);
    if (begin == 0 || candidate > largest) {
      largest = candidate;
      block = begin;
    }
  }
  while (x[block] != largest) ++block;
  return static_cast<int32_t>(block);
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
