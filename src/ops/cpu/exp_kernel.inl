// Kernel source: reading and writing rows, and the exponential function that softmax, SiLU and attention share.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

/// Lanes as integers.
typedef uint32_t Words __attribute__((vector_size(kWidth * 4)));

// Elements [0, min(count, kWidth)) of float32 or bfloat16 memory; the other lanes are zero, or not written.
MINISGL_INLINE V read(const float* p, int64_t count) {
  return count >= kWidth ? load(p) : load_first(p, count);
}
MINISGL_INLINE V read(const uint16_t* p, int64_t count) {
  return count >= kWidth ? load_bf16(p) : load_bf16_first(p, count);
}
MINISGL_INLINE void write(float* p, V x, int64_t count) {
  count >= kWidth ? store(p, x) : store_first(p, x, count);
}
MINISGL_INLINE void write(uint16_t* p, V x, int64_t count) {
  count >= kWidth ? store_bf16(p, x) : store_bf16_first(p, x, count);
}

static void bf16_to_float(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kWidth) write(out + i, read(x + i, n - i), n - i);
}

static void float_to_bf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kWidth) write(out + i, read(x + i, n - i), n - i);
}

/// x * 2^n for integral n in [-125, 128].
MINISGL_INLINE V scale_by_pow2(V x, V n) {
#if defined(__AVX512F__)
  return {_mm512_scalef_ps(x.v, n.v)};
#else
  const V half = mul(x, pow2(sub(n, broadcast(1.0f))));
  return add(half, half);
#endif
}

/// `value`, but 0 in the lanes where x < bound.
MINISGL_INLINE V zero_where_less(V x, float bound, V value) {
#if defined(__AVX512F__)
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, broadcast(bound).v, _CMP_NLT_UQ), value.v)};
#else
  const Words less = reinterpret_cast<Words>(x.v < broadcast(bound).v);
  return {reinterpret_cast<decltype(V::v)>(reinterpret_cast<Words>(value.v) & ~less)};
#endif
}

/// exp(x) within 1.5 units in the last place; exp(0) = 1, exp(inf) = inf, NaN stays NaN, and 0 below exp(-86.9) = 1.8e-38: subnormal
/// results would cost a hundred times more and change no sum. x = n ln 2 + r, |r| <= ln 2 / 2 (Cody and Waite's split of ln 2); exp(r) by
/// the polynomial of Cephes' expf.
MINISGL_INLINE V exp(V x) {
  constexpr float kLowest = -86.9f;
  // min and max give their second operand where one is NaN.
  const V bounded = min(broadcast(89.0f), max(broadcast(kLowest), x));
  const V n = round_nearest(mul(bounded, broadcast(1.44269504f)));
  V r = fmadd(n, broadcast(-0.693359375f), bounded);
  r = fmadd(n, broadcast(2.12194440e-4f), r);
  V p = broadcast(1.9875691500e-4f);
  p = fmadd(p, r, broadcast(1.3981999507e-3f));
  p = fmadd(p, r, broadcast(8.3334519073e-3f));
  p = fmadd(p, r, broadcast(4.1665795894e-2f));
  p = fmadd(p, r, broadcast(1.6666665459e-1f));
  p = fmadd(p, r, broadcast(5.0000001201e-1f));
  p = add(fmadd(mul(r, r), p, r), broadcast(1.0f));
  return zero_where_less(x, kLowest, scale_by_pow2(p, n));
}

static void exp_row(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kWidth) write(out + i, exp(read(x + i, n - i)), n - i);
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
