#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace minisgl {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt32, kInt64, kUInt8 };

constexpr size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

/// "float32", "bfloat16", ...
const char* dtype_name(DType dtype);

/// The upper half of a float32. Conversion from float rounds to nearest, ties to even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x0040u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

/// IEEE binary16 to float32, exact, subnormals and NaN included.
float half_to_float(uint16_t bits);

}  // namespace minisgl
