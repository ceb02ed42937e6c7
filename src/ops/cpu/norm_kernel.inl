// Kernel source: RMSNorm. T is the activation type: float, or uint16_t for bfloat16.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

template <typename T>
MINISGL_INLINE float sum_of_squares(const T* x, int64_t n) {
  // Four chains hide the latency of the additions; their order depends on n alone.
  V sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    for (int j = 0; j < 4; ++j) {
      const V v = read(x + i + j * kWidth, kWidth);
      sum[j] = fmadd(v, v, sum[j]);
    }
  }
  for (; i < n; i += kWidth) {
    const V v = read(x + i, n - i);
    sum[0] = fmadd(v, v, sum[0]);
  }
  return reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

template <typename T>
static void rms_norm(const void* x_raw, const float* weight, float eps, int64_t n, void* out_raw) {
  const T* x = static_cast<const T*>(x_raw);
  T* out = static_cast<T*>(out_raw);
  const V inverse = broadcast(1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += kWidth) {
    write(out + i, mul(mul(read(x + i, n - i), inverse), read(weight + i, n - i)), n - i);
  }
}

template <typename T>
static void add_rms_norm(const void* x_raw, void* residual_raw, const float* weight, float eps, int64_t n, void* out) {
  const T* x = static_cast<const T*>(x_raw);
  T* residual = static_cast<T*>(residual_raw);
  for (int64_t i = 0; i < n; i += kWidth) write(residual + i, add(read(residual + i, n - i), read(x + i, n - i)), n - i);
  rms_norm<T>(residual, weight, eps, n, out);
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
