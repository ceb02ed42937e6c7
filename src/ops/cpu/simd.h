#pragma once

// A vector of floats in the instruction set this translation unit is compiled for.
//
// A kernel is one source (`x_kernel.inl`) included by x_portable.cc, x_avx2.cc and x_avx512.cc, which CMake compiles with that set's
// flags, and lives in `namespace minisgl::cpu::MINISGL_ISA_NAMESPACE`. Such a file must emit no function that common code could share: an
// inline function of the standard library compiled here could be the copy the linker keeps for everyone, and fault on a smaller CPU. Hence
// the rules: include only this header and plain structs, mark every helper MINISGL_INLINE, and export free functions only.
//
// V holds kWidth floats. Every operation is elementwise and rounds once (fmadd: once where the set has it, twice in portable), so that bits
// differ between instruction sets at most, never within one. Reductions add in one fixed tree.

#include <stdint.h>

#if defined(__AVX512F__)
#define MINISGL_ISA_NAMESPACE avx512
#include <immintrin.h>
#elif defined(__AVX2__)
#define MINISGL_ISA_NAMESPACE avx2
#include <immintrin.h>
#else
#define MINISGL_ISA_NAMESPACE portable
#endif

#define MINISGL_INLINE static inline __attribute__((always_inline))

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

MINISGL_INLINE float float_from_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

MINISGL_INLINE uint32_t bits_of_float(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

MINISGL_INLINE float float_from_bf16(uint16_t bits) {
  return float_from_bits(static_cast<uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN (as BFloat16 does).
MINISGL_INLINE uint16_t bf16_from_float(float value) {
  const uint32_t u = bits_of_float(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

#if defined(__AVX512F__)

constexpr int kWidth = 16;
struct V {
  __m512 v;
};

MINISGL_INLINE __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}

MINISGL_INLINE V zero() {
  return {_mm512_setzero_ps()};
}
MINISGL_INLINE V broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
MINISGL_INLINE V load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
MINISGL_INLINE void store(float* p, V x) {
  _mm512_storeu_ps(p, x.v);
}
/// The first `count` in [0, kWidth) elements, the others zero; touches no memory beyond them.
MINISGL_INLINE V load_first(const float* p, int64_t count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), p)};
}
MINISGL_INLINE void store_first(float* p, V x, int64_t count) {
  _mm512_mask_storeu_ps(p, first_lanes(count), x.v);
}
/// Widens kWidth bfloat16 values; exact.
MINISGL_INLINE V load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
/// Rounds to nearest, ties to even; NaN stays NaN.
MINISGL_INLINE void store_bf16(uint16_t* p, V x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i h = _mm512_mask_blend_epi32(nan, rounded, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(h));
}
/// kWidth pairs of bfloat16, each pair one 32-bit word: `low` gets the words' lower halves, `high` their upper halves.
MINISGL_INLINE void load_bf16_pairs(const uint32_t* p, V& low, V& high) {
  const __m512i words = _mm512_loadu_si512(p);
  low.v = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  high.v = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
MINISGL_INLINE V add(V a, V b) {
  return {_mm512_add_ps(a.v, b.v)};
}
MINISGL_INLINE V sub(V a, V b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
MINISGL_INLINE V mul(V a, V b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
MINISGL_INLINE V div(V a, V b) {
  return {_mm512_div_ps(a.v, b.v)};
}
/// a * b + c.
MINISGL_INLINE V fmadd(V a, V b, V c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
/// The second operand where the first is NaN or both are equal.
MINISGL_INLINE V max(V a, V b) {
  return {_mm512_max_ps(a.v, b.v)};
}
MINISGL_INLINE V min(V a, V b) {
  return {_mm512_min_ps(a.v, b.v)};
}
/// To the nearest integer, ties to even, for |x| < 2^22.
MINISGL_INLINE V round_nearest(V x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// 2^n for integral n in [-127, 127]; -127 gives 0.
MINISGL_INLINE V pow2(V n) {
  const __m512i i = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(i, 23))};
}

#elif defined(__AVX2__)

constexpr int kWidth = 8;
struct V {
  __m256 v;
};

MINISGL_INLINE __m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

MINISGL_INLINE V zero() {
  return {_mm256_setzero_ps()};
}
MINISGL_INLINE V broadcast(float x) {
  return {_mm256_set1_ps(x)};
}
MINISGL_INLINE V load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
MINISGL_INLINE void store(float* p, V x) {
  _mm256_storeu_ps(p, x.v);
}
MINISGL_INLINE V load_first(const float* p, int64_t count) {
  return {_mm256_maskload_ps(p, first_lanes(count))};
}
MINISGL_INLINE void store_first(float* p, V x, int64_t count) {
  _mm256_maskstore_ps(p, first_lanes(count), x.v);
}
MINISGL_INLINE V load_bf16(const uint16_t* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))};
}
MINISGL_INLINE void store_bf16(uint16_t* p, V x) {
  const __m256i u = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i h = _mm256_blendv_epi8(rounded, quiet, nan);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
}
MINISGL_INLINE void load_bf16_pairs(const uint32_t* p, V& low, V& high) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  low.v = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  high.v = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
MINISGL_INLINE V add(V a, V b) {
  return {_mm256_add_ps(a.v, b.v)};
}
MINISGL_INLINE V sub(V a, V b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
MINISGL_INLINE V mul(V a, V b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
MINISGL_INLINE V div(V a, V b) {
  return {_mm256_div_ps(a.v, b.v)};
}
MINISGL_INLINE V fmadd(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
MINISGL_INLINE V max(V a, V b) {
  return {_mm256_max_ps(a.v, b.v)};
}
MINISGL_INLINE V min(V a, V b) {
  return {_mm256_min_ps(a.v, b.v)};
}
MINISGL_INLINE V round_nearest(V x) {
  return {_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
MINISGL_INLINE V pow2(V n) {
  const __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(i, 23))};
}

#else

constexpr int kWidth = 4;
typedef float Float4 __attribute__((vector_size(16), aligned(16)));
typedef float Float4Unaligned __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t Word4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
struct V {
  Float4 v;
};

MINISGL_INLINE V zero() {
  return {Float4{0.0f, 0.0f, 0.0f, 0.0f}};
}
MINISGL_INLINE V broadcast(float x) {
  return {Float4{x, x, x, x}};
}
MINISGL_INLINE V load(const float* p) {
  return {*reinterpret_cast<const Float4Unaligned*>(p)};
}
MINISGL_INLINE void store(float* p, V x) {
  *reinterpret_cast<Float4Unaligned*>(p) = x.v;
}
MINISGL_INLINE V load_first(const float* p, int64_t count) {
  V x = zero();
  for (int i = 0; i < count; ++i) x.v[i] = p[i];
  return x;
}
MINISGL_INLINE void store_first(float* p, V x, int64_t count) {
  for (int i = 0; i < count; ++i) p[i] = x.v[i];
}
MINISGL_INLINE V load_bf16(const uint16_t* p) {
  const Word4 words = {p[0], p[1], p[2], p[3]};
  return {reinterpret_cast<Float4>(words << 16)};
}
MINISGL_INLINE void store_bf16(uint16_t* p, V x) {
  for (int i = 0; i < kWidth; ++i) p[i] = bf16_from_float(x.v[i]);
}
MINISGL_INLINE void load_bf16_pairs(const uint32_t* p, V& low, V& high) {
  Word4 words;
  __builtin_memcpy(&words, p, sizeof words);
  low.v = reinterpret_cast<Float4>(words << 16);
  high.v = reinterpret_cast<Float4>(words & 0xffff0000u);
}
MINISGL_INLINE V add(V a, V b) {
  return {a.v + b.v};
}
MINISGL_INLINE V sub(V a, V b) {
  return {a.v - b.v};
}
MINISGL_INLINE V mul(V a, V b) {
  return {a.v * b.v};
}
MINISGL_INLINE V div(V a, V b) {
  return {a.v / b.v};
}
MINISGL_INLINE V fmadd(V a, V b, V c) {
  return {a.v * b.v + c.v};
}
MINISGL_INLINE V max(V a, V b) {
  return {a.v > b.v ? a.v : b.v};
}
MINISGL_INLINE V min(V a, V b) {
  return {a.v < b.v ? a.v : b.v};
}
MINISGL_INLINE V round_nearest(V x) {
  // Adding 1.5 * 2^23 leaves no room for a fraction, so the addition itself rounds to nearest even.
  const Float4 magic = broadcast(0x1.8p23f).v;
  return {(x.v + magic) - magic};
}
MINISGL_INLINE V pow2(V n) {
  const Int4 i = __builtin_convertvector(n.v, Int4) + 127;
  return {reinterpret_cast<Float4>(i << 23)};
}

#endif

// Reductions: halves are joined until one lane is left.
#if defined(__AVX2__)
#if defined(__AVX512F__)
MINISGL_INLINE __m256 low_half(V x) {
  return _mm512_castps512_ps256(x.v);
}
MINISGL_INLINE __m256 high_half(V x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1));
}
#endif

/// Sum of all lanes.
MINISGL_INLINE float reduce_add(V x) {
#if defined(__AVX512F__)
  const __m256 eight = _mm256_add_ps(low_half(x), high_half(x));
#else
  const __m256 eight = x.v;
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// Largest lane; NaN lanes give an unspecified lane.
MINISGL_INLINE float reduce_max(V x) {
#if defined(__AVX512F__)
  const __m256 eight = _mm256_max_ps(low_half(x), high_half(x));
#else
  const __m256 eight = x.v;
#endif
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#else
MINISGL_INLINE float reduce_add(V x) {
  return (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]);
}
MINISGL_INLINE float reduce_max(V x) {
  const float even = x.v[0] > x.v[2] ? x.v[0] : x.v[2], odd = x.v[1] > x.v[3] ? x.v[1] : x.v[3];
  return even > odd ? even : odd;
}
#endif

/// The first `count` in [0, kWidth) bfloat16 values widened, the others zero.
MINISGL_INLINE V load_bf16_first(const uint16_t* p, int64_t count) {
  uint16_t lanes[kWidth] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load_bf16(lanes);
}

MINISGL_INLINE void store_bf16_first(uint16_t* p, V x, int64_t count) {
  float lanes[kWidth];
  store(lanes, x);
  for (int64_t i = 0; i < count; ++i) p[i] = bf16_from_float(lanes[i]);
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
