#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace minisgl {
namespace {

constexpr int64_t kPosition = 1000;

/// Inverse frequency of a pair, cosine and sine at kPosition.
struct Golden {
  size_t pair;
  float frequency, cosine, sine;
};

/// The values are printed by tests/tools/rope_golden.py.
void expect_table(const RopeConfig& rope, int64_t head_dim, const std::vector<Golden>& golden) {
  const std::vector<float> frequencies = rope_inverse_frequencies(rope, head_dim);
  RopeTable table(rope, head_dim, kPosition + 1);
  table.cover(0);
  table.cover(kPosition);
  ASSERT_EQ(table.view().shape(), (Shape{kPosition + 1, head_dim}));
  const float* row = table.view().data<float>() + kPosition * head_dim;
  for (const Golden& g : golden) {
    EXPECT_NEAR(frequencies[g.pair], g.frequency, 2.5e-7f * g.frequency) << "pair " << g.pair;
    // Powers of two libraries may differ in the last bit of the frequency, which moves the angle by as much relatively.
    const float tolerance = 1e-6f + 2.5e-7f * g.frequency * kPosition;
    EXPECT_NEAR(row[g.pair], g.cosine, tolerance) << "cosine of pair " << g.pair;
    EXPECT_NEAR(row[static_cast<size_t>(head_dim / 2) + g.pair], g.sine, tolerance) << "sine of pair " << g.pair;
  }
  for (int64_t i = 0; i < head_dim / 2; ++i) {  // position 0 turns nothing
    EXPECT_EQ(table.view().data<float>()[head_dim / 2 + i], 0.0f);
  }
}

TEST(Rope, Default) {
  RopeConfig rope;
  rope.theta = 1e6;
  expect_table(rope, 128,
               {{0, 1.0f, 0.562379062f, 0.826879561f},
                {1, 0.805842221f, -0.0237062536f, 0.999718964f},
                {21, 0.0107460786f, -0.2469154f, -0.969037056f},
                {32, 0.00100000005f, 0.540302277f, 0.841470957f},
                {42, 0.000115478208f, 0.993339777f, 0.115221724f},
                {63, 1.24093776e-06f, 0.999999225f, 0.00124093739f}});
}

TEST(Rope, LinearDividesEveryFrequency) {
  RopeConfig rope;
  rope.kind = RopeKind::kLinear;
  rope.theta = 1e4;
  rope.factor = 2.5;
  expect_table(rope, 64,
               {{0, 0.400000006f, -0.52529633f, -0.850919366f},
                {1, 0.299957693f, -0.064351283f, -0.997927308f},
                {10, 0.0224936511f, -0.876380384f, -0.481619626f},
                {16, 0.00399999972f, -0.653643787f, -0.75680232f},
                {21, 0.000948549539f, 0.582862258f, 0.81257093f},
                {31, 5.33408602e-05f, 0.998577714f, 0.0533155687f}});
}

TEST(Rope, Llama3KeepsShortWavelengthsAndBlends) {
  RopeConfig rope;
  rope.kind = RopeKind::kLlama3;
  rope.theta = 5e5;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position = 8192;
  expect_table(rope, 128,
               {{0, 1.0f, 0.562379062f, 0.826879561f},
                {1, 0.814617217f, -0.585993946f, -0.81031543f},
                {21, 0.0134904208f, 0.602593243f, 0.798048496f},
                {32, 0.000524846022f, 0.865401089f, 0.501079738f},
                {42, 2.27489272e-05f, 0.999741256f, 0.0227469653f},
                {63, 3.06892588e-07f, 0.99999994f, 0.000306892587f}});
}

TEST(Rope, Llama3WithEqualBordersHasNoBlend) {
  RopeConfig rope;
  rope.kind = RopeKind::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 4;
  rope.high_freq_factor = 4;
  rope.original_max_position = 64;
  RopeConfig plain;
  const auto scaled = rope_inverse_frequencies(rope, 64);
  const auto unscaled = rope_inverse_frequencies(plain, 64);
  for (size_t i = 0; i < scaled.size(); ++i) {
    const bool keeps = 2 * M_PI / static_cast<double>(unscaled[i]) <= 16;
    EXPECT_EQ(scaled[i], keeps ? unscaled[i] : unscaled[i] / 8) << i;
  }
}

TEST(Rope, YarnScalesFrequenciesAndBothFunctions) {
  RopeConfig rope;
  rope.kind = RopeKind::kYarn;
  rope.theta = 1e6;
  rope.factor = 4;
  rope.original_max_position = 32768;
  rope.attention_factor = 0.1 * std::log(4.0) + 1;
  expect_table(rope, 128,
               {{0, 1.0f, 0.640341341f, 0.941509426f},
                {1, 0.805842221f, -0.0269926377f, 1.13830948f},
                {21, 0.0107460786f, -0.281145155f, -1.10337412f},
                {32, 0.000602941145f, 0.937856436f, 0.645679712f},
                {42, 2.88695519e-05f, 1.13815498f, 0.032867156f},
                {63, 3.10234441e-07f, 1.13862932f, 0.000353242067f}});
}

TEST(Rope, YarnWithoutTruncation) {
  RopeConfig rope;
  rope.kind = RopeKind::kYarn;
  rope.theta = 1e4;
  rope.factor = 16;
  rope.original_max_position = 4096;
  rope.attention_factor = 0.1 * std::log(16.0) + 1;
  rope.truncate = false;
  expect_table(rope, 64,
               {{0, 1.0f, 0.718303621f, 1.05613923f},
                {1, 0.749894202f, -0.746676445f, 1.03627431f},
                {10, 0.0562341288f, 1.21459472f, -0.395158052f},
                {16, 0.0056962138f, 1.06347346f, -0.707399666f},
                {21, 0.000427636842f, 1.16223955f, 0.529706836f},
                {31, 8.3345094e-06f, 1.27721453f, 0.0106452024f}});
}

}  // namespace
}  // namespace minisgl
