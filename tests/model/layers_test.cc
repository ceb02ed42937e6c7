#include "model/layers.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "base/compute_pool.h"
#include "model/thread_communicator.h"

namespace minisgl {
namespace {

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

TEST(RowParallelSlices, IsTheLargestPowerOfTwoThatDividesUpToEight) {
  EXPECT_EQ(row_parallel_slices(3072), 8);
  EXPECT_EQ(row_parallel_slices(96), 8);
  EXPECT_EQ(row_parallel_slices(12), 4);
  EXPECT_EQ(row_parallel_slices(6), 2);
  EXPECT_EQ(row_parallel_slices(7), 1);
}

TEST(RowParallelLinear, HasTheSameBitsOnOneRankAndOnSeveral) {
  constexpr int64_t kTokens = 5, kN = 48, kK = 192;
  const std::vector<float> weight = random_values(kN * kK, 1);
  const std::vector<float> x = random_values(kTokens * kK, 2);
  const std::vector<float> bias = random_values(kN, 3);

  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<float> expected;
    for (const int ranks : {1, 2, 4, 8}) {
      ThreadCommunicator::Group group(ranks);
      std::vector<std::vector<float>> results(static_cast<size_t>(ranks), std::vector<float>(kTokens * kN));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          ComputePool pool(1);
          const auto ops = make_cpu_ops(pool);
          ThreadCommunicator communicator(group, rank);
          RowParallelLinear layer(*ops, communicator, kN, kK, true, dtype, kTokens);
          const int64_t share = kK / ranks;
          std::vector<float> columns;
          for (int64_t row = 0; row < kN; ++row) {
            const auto begin = weight.begin() + row * kK + rank * share;
            columns.insert(columns.end(), begin, begin + share);
          }
          ops->pack_rows(layer.weight(), 0, Tensor(columns.data(), DType::kFloat32, {kN, share}));
          std::copy(bias.begin(), bias.end(), layer.bias().data<float>());
          auto input = x;
          const Tensor local = Tensor(input.data(), DType::kFloat32, {kTokens, kK}).columns(rank * share, share);
          layer.forward(local, Tensor(results[static_cast<size_t>(rank)].data(), DType::kFloat32, {kTokens, kN}));
        });
      }
      for (std::thread& thread : threads) thread.join();
      if (ranks == 1) expected = results[0];
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(results[static_cast<size_t>(rank)], expected) << rank << " of " << ranks;
    }
    for (int64_t n = 0; n < kN; ++n) {  // the bias is there once
      double sum = bias[static_cast<size_t>(n)];
      for (int64_t k = 0; k < kK; ++k) {
        const float w = weight[static_cast<size_t>(n * kK + k)];
        sum += x[static_cast<size_t>(k)] * (dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(w)) : w);
      }
      EXPECT_NEAR(expected[static_cast<size_t>(n)], sum, 1e-4) << n;
    }
  }
}

}  // namespace
}  // namespace minisgl
