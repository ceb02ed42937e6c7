// Kernel source: rotary embedding.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

template <typename T>
static void rope(void* x, const float* cosine, const float* sine, int64_t half) {
  T* first = static_cast<T*>(x);
  T* second = first + half;
  for (int64_t i = 0; i < half; i += kWidth) {
    const int64_t left = half - i;
    const V a = read(first + i, left), b = read(second + i, left), c = read(cosine + i, left), s = read(sine + i, left);
    // Separate roundings, as Hugging Face's x * cos + rotate_half(x) * sin.
    write(first + i, sub(mul(a, c), mul(b, s)), left);
    write(second + i, add(mul(b, c), mul(a, s)), left);
  }
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
