#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace minisgl {
namespace {

TEST(Philox, KnownAnswersOfTheReferenceImplementation) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(FloatMath, LogAndExpAgreeWithDouble) {
  for (double x = 1e-30; x < 1e30; x *= 1.37) {
    const auto f = static_cast<float>(x);
    const double expected = std::log(static_cast<double>(f));
    EXPECT_NEAR(log_positive(f), expected, 3e-7 * std::max(1.0, std::fabs(expected))) << f;
  }
  for (float f = -0.5f; f <= 1.0f / 3; f += 0.001f) {
    const double expected = std::log1p(static_cast<double>(f));
    EXPECT_NEAR(log1p_reduced(f), expected, 3e-7 * std::fabs(expected) + 1e-30) << f;
  }
  for (float x = 0; x > -86; x -= 0.013f) {
    const double expected = std::exp(static_cast<double>(x));
    EXPECT_NEAR(exp_non_positive(x), expected, 3e-7 * expected) << x;
  }
  EXPECT_EQ(exp_non_positive(0), 1);
  EXPECT_EQ(exp_non_positive(-1000), 0);
  EXPECT_EQ(exp_non_positive(-HUGE_VALF), 0);
}

TEST(Gumbel, AgreesWithItsDefinitionAndStaysInItsBound) {
  for (const uint64_t bits64 : {0ull, 1ull, 2ull, 1000ull, 0x7fffffffull, 0x80000000ull, 0xc0000000ull, 0xfffffff0ull, 0xffffffffull}) {
    const auto bits = static_cast<uint32_t>(bits64);
    const double v = (static_cast<double>(bits) + 0.5) / 4294967296.0;
    const double expected = -std::log(-std::log1p(-v));
    EXPECT_NEAR(gumbel_from_bits(bits), expected, 2e-6 * std::max(1.0, std::fabs(expected))) << bits;
    EXPECT_LT(gumbel_from_bits(bits), kMaxGumbel);
  }
}

TEST(Gumbel, HasTheMomentsOfTheDistribution) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double g = gumbel(1, 0, 5, static_cast<uint32_t>(i));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.5772, 0.01);                            // Euler's constant
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.6449, 0.02);  // pi^2 / 6
}

TEST(Gumbel, EveryPartOfTheKeyMatters) {
  const float base = gumbel(1, 2, 3, 4);
  EXPECT_NE(base, gumbel(2, 2, 3, 4));
  EXPECT_NE(base, gumbel(1 + (uint64_t{1} << 32), 2, 3, 4));
  EXPECT_NE(base, gumbel(1, 3, 3, 4));
  EXPECT_NE(base, gumbel(1, 2, 4, 4));
  EXPECT_NE(base, gumbel(1, 2, 3, 5));
  EXPECT_NE(base, gumbel(1, 2, 3, 8));
  EXPECT_EQ(base, gumbel(1, 2, 3, 4));
}

}  // namespace
}  // namespace minisgl
