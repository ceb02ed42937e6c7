#pragma once

#include <array>
#include <cstdint>

#include "base/float_math.h"

namespace minisgl {

/// Random numbers as pure functions of what they are for: no state, so that batch, rank, shard and graph cannot change a draw.
/// The same bits on every instruction set (see base/float_math.h).

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11): a bijection of the 128-bit counter
/// for each 64-bit key.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// The 32 random bits of the four tokens 4 * block .. 4 * block + 3 of a draw: key = seed, counter = (block, position, choice, 0).
/// `position` is the place in the sequence (prompt included) that the drawn token takes.
constexpr std::array<uint32_t, 4> draw_bits(uint64_t seed, uint32_t choice, uint32_t position, uint32_t block) {
  return philox4x32({block, position, choice, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

/// A bound that no Gumbel number exceeds.
inline constexpr float kMaxGumbel = 23.0f;

/// A standard Gumbel number from 32 random bits, float32: with v = (bits + 1/2) / 2^32, -log(-log(1 - v)). Small v give the large
/// numbers that win a draw; there float32 resolves every value of `bits`.
constexpr float gumbel_from_bits(uint32_t bits) {
  constexpr float kUnit = 1.0f / 4294967296.0f;
  const float exponential = bits < 0x80000000u ? -log1p_reduced(-((static_cast<float>(bits) + 0.5f) * kUnit))
                                               : -log_positive((static_cast<float>(~bits) + 0.5f) * kUnit);
  return -log_positive(exponential);
}

/// The noise of one token in one draw. The token with the largest score + gumbel is a sample of softmax(score) (Gumbel-max).
constexpr float gumbel(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token_id) {
  return gumbel_from_bits(draw_bits(seed, choice, position, token_id / 4)[token_id % 4]);
}

}  // namespace minisgl
