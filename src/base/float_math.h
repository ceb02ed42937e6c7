#pragma once

#include <bit>
#include <cstdint>

namespace minisgl {

/// exp and log in float32 from +, -, *, / and integer operations alone, without contraction: unlike the C library's, which picks a version
/// by CPU, they give the same bits on every instruction set. Relative error below 2^-22.

/// log(1 + f) for f in [-1/2, 1/3]: 2 artanh(s) with s = f / (2 + f), the series cut where a term is below 2^-25 of the sum.
constexpr float log1p_reduced(float f) {
  const float s = f / (2.0f + f);
  const float z = s * s;
  float sum = 1.0f / 15.0f;
  sum = sum * z + 1.0f / 13.0f;
  sum = sum * z + 1.0f / 11.0f;
  sum = sum * z + 1.0f / 9.0f;
  sum = sum * z + 1.0f / 7.0f;
  sum = sum * z + 1.0f / 5.0f;
  sum = sum * z + 1.0f / 3.0f;
  return 2.0f * s + 2.0f * s * (z * sum);
}

/// log(x) of a positive normal number: x = 2^e (1 + f) with f in [-1/3, 1/3]; ln 2 in two parts, the first exact times e.
constexpr float log_positive(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  auto exponent = static_cast<int32_t>(bits >> 23) - 127;
  float mantissa = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f800000u);
  if (mantissa > 4.0f / 3.0f) {
    mantissa *= 0.5f;
    ++exponent;
  }
  const auto e = static_cast<float>(exponent);
  return e * 0.693359375f + (log1p_reduced(mantissa - 1.0f) + e * -2.12194440e-4f);
}

/// exp(x) of x <= 0, minus infinity included; 0 below -87. x = n ln 2 + r, the Taylor series of degree 7 in r.
constexpr float exp_non_positive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const auto n = static_cast<int32_t>(clamped * 1.44269504f - 0.5f);  // rounds to nearest: the argument is not positive
  const auto e = static_cast<float>(n);
  const float r = (clamped - e * 0.693359375f) - e * -2.12194440e-4f;
  float sum = 1.0f / 5040.0f;
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
  return x < -87.0f ? 0.0f : sum * scale;
}

}  // namespace minisgl
