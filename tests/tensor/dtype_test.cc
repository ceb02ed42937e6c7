#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace minisgl {
namespace {

TEST(BFloat16Test, RoundsToNearestTiesToEven) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // half way: to even
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80) << "beyond the largest: infinity";
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u))))) << "a NaN whose payload is cut off stays a NaN";
}

TEST(BFloat16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) continue;
    EXPECT_EQ(BFloat16(wide).bits, value.bits);
  }
}

TEST(HalfTest, EveryPatternIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int sign = (bits & 0x8000) != 0 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 10 & 0x1f);
    const int mantissa = static_cast<int>(bits & 0x3ff);
    const float value = half_to_float(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
    } else {
      const double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(value, sign * expected) << bits;
    }
    if (!std::isnan(value)) {
      EXPECT_EQ(std::signbit(value), sign < 0);
    }
  }
}

}  // namespace
}  // namespace minisgl
