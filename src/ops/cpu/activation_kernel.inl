// Kernel source: SiLU.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

template <typename T>
static void silu_and_mul(const void* gate_raw, const void* up_raw, int64_t n, void* out_raw) {
  const T* gate = static_cast<const T*>(gate_raw);
  const T* up = static_cast<const T*>(up_raw);
  T* out = static_cast<T*>(out_raw);
  for (int64_t i = 0; i < n; i += kWidth) {
    const V g = read(gate + i, n - i);
    const V silu = div(g, add(broadcast(1.0f), exp(sub(zero(), g))));
    write(out + i, mul(silu, read(up + i, n - i)), n - i);
  }
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
