#include "moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/compute_pool.h"
#include "model/thread_communicator.h"

namespace minisgl {
namespace {

constexpr MoeShape kShape{.hidden_size = 32, .intermediate_size = 24, .num_experts = 6, .experts_per_token = 3, .normalize_weights = true};

/// A layer with random weights, and the same weights as rows. Of several ranks each packs its share of the same weights.
struct TestLayer {
  explicit TestLayer(ComputePool& pool, DType dtype = DType::kFloat32, std::unique_ptr<Communicator> ranks = make_self_communicator())
      : communicator(std::move(ranks)), ops(make_cpu_ops(pool)), layer(*ops, *communicator, kShape, dtype) {
    constexpr int64_t kHidden = kShape.hidden_size, kIntermediate = kShape.intermediate_size;
    const int64_t share = kIntermediate / communicator->size();
    const int64_t first = communicator->rank() * share;
    router = random_matrix(kShape.num_experts, kHidden);
    ops->pack_rows(layer.router(), 0, view(router, kShape.num_experts, kHidden));
    for (int64_t e = 0; e < kShape.num_experts; ++e) {
      gate_up.push_back(random_matrix(2 * kIntermediate, kHidden));
      const Tensor rows = view(gate_up.back(), 2 * kIntermediate, kHidden);
      ops->pack_rows(layer.gate_up(e), 0, rows.rows(first, share));
      ops->pack_rows(layer.gate_up(e), share, rows.rows(kIntermediate + first, share));
      down.push_back(random_matrix(kHidden, kIntermediate));
      for (int64_t row = 0; row < kHidden; ++row) {
        ops->pack_rows(layer.down(e), row, Tensor(down.back().data() + row * kIntermediate + first, DType::kFloat32, {1, share}));
      }
    }
  }

  static Tensor view(std::vector<float>& values, int64_t rows, int64_t columns) {
    return Tensor(values.data(), DType::kFloat32, {rows, columns});
  }
  std::vector<float> random_matrix(int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = normal(generator);
    return values;
  }

  std::vector<float> run(std::vector<float> x, int64_t max_tokens) {
    const int64_t tokens = static_cast<int64_t>(x.size()) / kShape.hidden_size;
    MoeWorkspace workspace(kShape, communicator->size(), max_tokens, Device{});
    const Tensor view(x.data(), DType::kFloat32, {tokens, kShape.hidden_size});
    layer.forward(view, view, workspace);
    return x;
  }

  std::mt19937 generator{5};
  std::normal_distribution<float> normal{0, 0.3f};
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Ops> ops;
  MoeLayer layer;
  std::vector<float> router;
  std::vector<std::vector<float>> gate_up, down;
};

std::vector<float> tokens(int64_t count) {
  std::mt19937 generator(9);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count * kShape.hidden_size));
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<double> multiply(const std::vector<float>& matrix, const std::vector<double>& x) {
  std::vector<double> out(matrix.size() / x.size());
  for (size_t row = 0; row < out.size(); ++row) {
    for (size_t k = 0; k < x.size(); ++k) out[row] += static_cast<double>(matrix[row * x.size() + k]) * x[k];
  }
  return out;
}

/// The definition, for one token, in double.
std::vector<double> reference(const TestLayer& test, const std::vector<double>& x) {
  std::vector<double> probabilities = multiply(test.router, x);
  for (double& p : probabilities) p = std::exp(p);
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
  order.resize(static_cast<size_t>(kShape.experts_per_token));
  double sum = 0;
  for (const size_t e : order) sum += probabilities[e];
  std::vector<double> out(x.size());
  for (const size_t e : order) {
    const std::vector<double> gate_up = multiply(test.gate_up[e], x);
    std::vector<double> activated(gate_up.size() / 2);
    for (size_t i = 0; i < activated.size(); ++i) {
      activated[i] = gate_up[i] / (1 + std::exp(-gate_up[i])) * gate_up[activated.size() + i];
    }
    const std::vector<double> y = multiply(test.down[e], activated);
    for (size_t i = 0; i < out.size(); ++i) out[i] += probabilities[e] / sum * y[i];
  }
  return out;
}

TEST(MoeLayer, IsTheWeightedSumOfTheChosenExperts) {
  ComputePool pool(1);
  TestLayer test(pool);
  const std::vector<float> x = tokens(37);
  const std::vector<float> out = test.run(x, 37);
  for (size_t token = 0; token < 37; ++token) {
    const auto begin = x.begin() + static_cast<int64_t>(token) * kShape.hidden_size;
    const std::vector<double> expected = reference(test, std::vector<double>(begin, begin + kShape.hidden_size));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(out[token * expected.size() + i], expected[i], 2e-5) << token << ", " << i;
  }
}

TEST(MoeLayer, TokensDoNotInfluenceEachOther) {
  ComputePool pool(2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    TestLayer test(pool, dtype);
    const std::vector<float> x = tokens(37);
    const std::vector<float> whole = test.run(x, 64);
    EXPECT_EQ(test.run(x, 5), whole);  // blocks of at most 5 tokens
    for (int64_t token = 0; token < 37; ++token) {
      const auto begin = x.begin() + token * kShape.hidden_size;
      const std::vector<float> alone = test.run(std::vector<float>(begin, begin + kShape.hidden_size), 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + token * kShape.hidden_size)) << token;
    }
  }
}

TEST(MoeLayer, HasTheSameBitsOnOneRankAndOnSeveral) {
  ComputePool pool(1);
  const std::vector<float> x = tokens(11);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::vector<float> expected = TestLayer(pool, dtype).run(x, 4);  // several blocks
    for (const int ranks : {2, 4, 8}) {
      ThreadCommunicator::Group group(ranks);
      std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          ComputePool own(1);
          results[static_cast<size_t>(rank)] = TestLayer(own, dtype, std::make_unique<ThreadCommunicator>(group, rank)).run(x, 4);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(results[static_cast<size_t>(rank)], expected) << rank << " of " << ranks;
    }
  }
}

TEST(MoeLayer, NanStaysInItsToken) {
  ComputePool pool(1);
  TestLayer test(pool);
  std::vector<float> x = tokens(3);
  const std::vector<float> clean = test.run(x, 3);
  x[static_cast<size_t>(kShape.hidden_size) + 4] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = test.run(x, 3);
  for (int64_t i = 0; i < kShape.hidden_size; ++i) {
    const auto first = static_cast<size_t>(i);
    const auto second = static_cast<size_t>(kShape.hidden_size + i);
    const auto third = static_cast<size_t>(2 * kShape.hidden_size + i);
    EXPECT_EQ(out[first], clean[first]);
    EXPECT_TRUE(std::isnan(out[second]));
    EXPECT_EQ(out[third], clean[third]);
  }
}

}  // namespace
}  // namespace minisgl
