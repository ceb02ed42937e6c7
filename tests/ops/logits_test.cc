#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/cpu_ops_fixture.h"

namespace minisgl {
namespace {

using CpuLogits = CpuOpsTest;
MINISGL_EACH_ISA(CpuLogits);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct TopK {
  std::vector<int32_t> ids;
  std::vector<float> values;
};

TopK top_k_of(Ops& ops, const Tensor& values, int64_t k) {
  TopK top{std::vector<int32_t>(static_cast<size_t>(values.size(0) * k)), std::vector<float>(static_cast<size_t>(values.size(0) * k))};
  ops.top_k(values, vector_view(top.ids).reshaped({values.size(0), k}), vector_view(top.values).reshaped({values.size(0), k}));
  return top;
}

TEST_P(CpuLogits, LogSoftmaxMatchesDoublePrecision) {
  for (const int64_t n : {1, 3, 17, 1000, 49152, 151937}) {
    Matrix logits(DType::kFloat32, 2, n, 1), out(DType::kFloat32, 2, n, 3);
    logits.fill(static_cast<uint64_t>(n), 4.0f);
    if (n > 3) set_element(logits.view, 2, -kInfinity);
    ops->log_softmax(logits.view, out.view);
    for (int64_t r = 0; r < 2; ++r) {
      double largest = -1e300, sum = 0.0;
      for (int64_t i = 0; i < n; ++i) largest = std::max(largest, element(logits.view, r, i));
      for (int64_t i = 0; i < n; ++i) sum += std::exp(element(logits.view, r, i) - largest);
      for (int64_t i = 0; i < n; ++i) {
        const double want = element(logits.view, r, i) - largest - std::log(sum), got = element(out.view, r, i);
        ASSERT_TRUE(got == want || close_to(got, want, DType::kFloat32, 3e-7, 1e-6))
            << "n " << n << " element " << i << ": " << got << ", expected " << want;
      }
    }
    const std::vector<uint32_t> bits = bits_of(out.view);
    ops->log_softmax(logits.view, logits.view);
    ASSERT_EQ(bits_of(logits.view), bits);
  }
}

TEST_P(CpuLogits, LogSoftmaxOfNanIsNan) {
  for (const int64_t place : {0, 5, 40}) {
    Matrix logits(DType::kFloat32, 1, 41);
    logits.fill(1);
    set_element(logits.view, place, kNan);
    ops->log_softmax(logits.view, logits.view);
    for (int64_t i = 0; i < 41; ++i) ASSERT_TRUE(std::isnan(element(logits.view, 0, i)));
  }
}

TEST_P(CpuLogits, ArgmaxTakesTheLowestIndexOnTies) {
  for (const int64_t n : {1, 2, 15, 16, 17, 1023, 1024, 1025, 5000}) {
    Matrix logits(DType::kFloat32, 1, n, 1);
    std::vector<int32_t> got(1);
    for (const int64_t first : {int64_t{0}, n / 3, n / 2, n - 1}) {
      logits.fill(static_cast<uint64_t>(n));
      for (int64_t i = first; i < n; i += 3) set_element(logits.view, i, 9.0f);
      ops->argmax(logits.view, vector_view(got));
      EXPECT_EQ(got[0], first) << "n " << n;
    }
    for (int64_t i = 0; i < n; ++i) set_element(logits.view, i, -kInfinity);
    ops->argmax(logits.view, vector_view(got));
    EXPECT_EQ(got[0], 0) << "all minus infinity, n " << n;
  }
}

TEST_P(CpuLogits, ArgmaxOfARowWithNanIsMinusOne) {
  const int64_t n = 2100;
  for (const int64_t place : {0, 1, 15, 16, 1024, 2047, 2098, 2099}) {
    Matrix logits(DType::kFloat32, 3, n);
    logits.fill(2);
    set_element(logits.view, n + place, kNan);
    set_element(logits.view, 7, kInfinity);
    std::vector<int32_t> got(3);
    ops->argmax(logits.view, vector_view(got));
    EXPECT_EQ(got[0], 7);
    EXPECT_EQ(got[1], -1) << "NaN at " << place;
    EXPECT_GE(got[2], 0);
  }
}

TEST_P(CpuLogits, TopKEqualsASort) {
  for (const int64_t n : {1, 5, 64, 3000}) {
    for (const int64_t k : {int64_t{1}, int64_t{4}, int64_t{50}, n}) {
      if (k > n) continue;
      Matrix values(DType::kFloat32, 3, n, 2);
      values.fill(static_cast<uint64_t>(n + k));
      // Few distinct values make many ties; row 2 is ascending, the worst order.
      for (int64_t i = 0; i < n; ++i) {
        set_element(values.view, values.view.stride(0) + i, std::round(static_cast<float>(element(values.view, 1, i)) * 2.0f));
        set_element(values.view, 2 * values.view.stride(0) + i, static_cast<float>(i));
      }
      const TopK top = top_k_of(*ops, values.view, k);
      for (int64_t r = 0; r < 3; ++r) {
        std::vector<int32_t> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return element(values.view, r, a) > element(values.view, r, b); });
        for (int64_t j = 0; j < k; ++j) {
          ASSERT_EQ(top.ids[static_cast<size_t>(r * k + j)], order[static_cast<size_t>(j)]) << "n " << n << " k " << k << " row " << r;
          ASSERT_EQ(static_cast<double>(top.values[static_cast<size_t>(r * k + j)]),
                    element(values.view, r, order[static_cast<size_t>(j)]));
        }
      }
    }
  }
}

TEST_P(CpuLogits, TopKRanksNanLast) {
  std::vector<float> values = {kNan, 1.0f, kNan, 3.0f, kNan, 2.0f};
  const TopK top = top_k_of(*ops, vector_view(values).reshaped({1, 6}), 3);
  EXPECT_EQ(top.ids, (std::vector<int32_t>{3, 5, 1}));
}

TEST_P(CpuLogits, RouterMatchesDoublePrecision) {
  for (const int64_t experts : {4, 8, 60, 128}) {
    for (const bool normalize : {false, true}) {
      const int64_t tokens = 37, chosen = std::min<int64_t>(experts, 8);
      Matrix logits(DType::kFloat32, tokens, experts, 3), weights(DType::kFloat32, tokens, chosen, 1);
      logits.fill(static_cast<uint64_t>(experts), 2.0f);
      std::vector<int32_t> ids(static_cast<size_t>(tokens * chosen));
      ops->route_top_k(logits.view, normalize, vector_view(ids).reshaped({tokens, chosen}), weights.view);
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<int32_t> order(static_cast<size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return element(logits.view, t, a) > element(logits.view, t, b); });
        double sum = 0.0, chosen_sum = 0.0;
        for (int64_t e = 0; e < experts; ++e) sum += std::exp(element(logits.view, t, e));
        for (int64_t j = 0; j < chosen; ++j) chosen_sum += std::exp(element(logits.view, t, order[static_cast<size_t>(j)]));
        for (int64_t j = 0; j < chosen; ++j) {
          ASSERT_EQ(ids[static_cast<size_t>(t * chosen + j)], order[static_cast<size_t>(j)]);
          const double want = std::exp(element(logits.view, t, order[static_cast<size_t>(j)])) / (normalize ? chosen_sum : sum);
          ASSERT_TRUE(close_to(element(weights.view, t, j), want, DType::kFloat32, 1e-6, 0.0));
        }
      }
    }
  }
}

TEST_P(CpuLogits, RouterTakesTheLowestExpertOnTies) {
  std::vector<float> logits = {0.5f, 2.0f, 0.5f, 2.0f, 2.0f, 0.5f}, weights(3);
  std::vector<int32_t> ids(3);
  ops->route_top_k(vector_view(logits).reshaped({1, 6}), true, vector_view(ids).reshaped({1, 3}), vector_view(weights).reshaped({1, 3}));
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 3, 4}));
  for (const float weight : weights) EXPECT_FLOAT_EQ(weight, 1.0f / 3.0f);
}

TEST_P(CpuLogits, CombineExpertsAddsSlotsInOrderThenSlicesByTree) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t slices : {1, 2, 3, 5, 8}) {
      for (const int64_t n : {1, 33, 128}) {
        const int64_t tokens = 3, slots = 4;
        std::vector<float> expert_out = random_vector(slices * tokens * slots * n, 1);
        Matrix weights(DType::kFloat32, tokens, slots, 1), out(dtype, tokens, n, 2);
        weights.fill(2);
        ops->combine_experts(vector_view(expert_out).reshaped({slices, tokens * slots, n}), weights.view, out.view);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t i = 0; i < n; ++i) {
            std::vector<float> level;
            for (int64_t s = 0; s < slices; ++s) {
              float sum = 0.0f;
              for (int64_t j = 0; j < slots; ++j) {
                const float product = static_cast<float>(element(weights.view, t, j)) *
                                      expert_out[static_cast<size_t>((s * tokens * slots + t * slots + j) * n + i)];
                sum = j == 0 ? product : sum + product;
              }
              level.push_back(sum);
            }
            while (level.size() > 1) {
              std::vector<float> next;
              for (size_t s = 0; s + 1 < level.size(); s += 2) next.push_back(level[s] + level[s + 1]);
              if (level.size() % 2 != 0) next.push_back(level.back());
              level = next;
            }
            const double want = dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(level[0])) : level[0];
            ASSERT_EQ(element(out.view, t, i), want) << slices << " slices, n " << n;
          }
        }
      }
    }
  }
}

TEST_P(CpuLogits, BitsDoNotDependOnTheOtherRows) {
  const int64_t rows = 70, n = 1021;
  Matrix logits(DType::kFloat32, rows, n, 1), together(DType::kFloat32, rows, n), alone(DType::kFloat32, rows, n);
  logits.fill(3, 3.0f);
  ops->log_softmax(logits.view, together.view);
  Matrix weights(DType::kFloat32, rows, 9), weights_alone(DType::kFloat32, rows, 9);
  std::vector<int32_t> ids(static_cast<size_t>(rows * 9)), ids_alone(ids.size()), largest(static_cast<size_t>(rows)),
      largest_alone(largest.size());
  const Tensor ids_view = vector_view(ids).reshaped({rows, 9}), ids_alone_view = vector_view(ids_alone).reshaped({rows, 9});
  ops->route_top_k(logits.view, true, ids_view, weights.view);
  ops->argmax(logits.view, vector_view(largest));
  for (int64_t r = 0; r < rows; ++r) {
    const Tensor row = logits.view.rows(r, 1);
    ops->log_softmax(row, alone.view.rows(r, 1));
    ops->route_top_k(row, true, ids_alone_view.rows(r, 1), weights_alone.view.rows(r, 1));
    ops->argmax(row, vector_view(largest_alone).rows(r, 1));
  }
  EXPECT_EQ(bits_of(together.view), bits_of(alone.view));
  EXPECT_EQ(ids, ids_alone);
  EXPECT_EQ(bits_of(weights.view), bits_of(weights_alone.view));
  EXPECT_EQ(largest, largest_alone);
}

}  // namespace
}  // namespace minisgl
