#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "base/rng.h"

namespace minisgl {
namespace {

/// The documented rules, step by step, in double precision over a full sort.
int32_t reference_draw(std::vector<double> logits, const RowSampling& s, const std::vector<int32_t>& tokens, int position) {
  for (const auto& [id, bias] : s.logit_bias) logits[static_cast<size_t>(id)] += static_cast<double>(bias);
  if (position - s.prompt_tokens < s.min_tokens) {
    for (const int32_t id : s.banned_before_min) logits[static_cast<size_t>(id)] = -HUGE_VAL;
  }
  std::map<int32_t, int> seen;  // occurrences in the output
  for (int p = 0; p < position; ++p) seen[tokens[static_cast<size_t>(p)]] += p >= s.prompt_tokens ? 1 : 0;
  for (const auto& [id, count] : seen) {
    double& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / static_cast<double>(s.repetition_penalty) : logit * static_cast<double>(s.repetition_penalty);
    logit -= count * static_cast<double>(s.frequency_penalty) + (count > 0 ? static_cast<double>(s.presence_penalty) : 0);
  }

  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  if (s.temperature == 0) return order[0];
  const double max = logits[static_cast<size_t>(order[0])];
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < order.size(); ++i) {
    weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - max) / static_cast<double>(s.temperature));
  }
  size_t kept = s.top_k > 0 ? std::min(order.size(), static_cast<size_t>(s.top_k)) : order.size();
  const double total = std::accumulate(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(kept), 0.0);
  double before = 0;
  for (size_t i = 0; i < kept; ++i) {
    if (i > 0 && s.top_p < 1 && before >= static_cast<double>(s.top_p) * total) {
      kept = i;
      break;
    }
    before += weights[i];
  }
  int32_t best = -1;
  double best_score = -HUGE_VAL;
  for (size_t i = 0; i < kept; ++i) {
    if (weights[i] < static_cast<double>(s.min_p) || weights[i] == 0) continue;
    const double score =
        std::log(weights[i]) + static_cast<double>(gumbel(s.seed, static_cast<uint32_t>(s.choice), static_cast<uint32_t>(position),
                                                          static_cast<uint32_t>(order[i])));
    if (score > best_score || (score == best_score && order[i] < best)) {
      best_score = score;
      best = order[i];
    }
  }
  return best;
}

class SamplerTest : public ::testing::Test {
 protected:
  struct Row {
    std::vector<float> logits;
    RowSampling sampling;
    std::vector<int32_t> tokens;
  };

  explicit SamplerTest(int64_t vocab = 37) : vocab_(vocab), ops_(make_cpu_ops(process_compute_pool(2))) {}

  /// Draws all rows in one call.
  std::vector<int32_t> sample(const std::vector<Row>& rows, std::vector<RowStatus>* status_out = nullptr, const uint32_t* mask = nullptr) {
    const auto vocab = static_cast<int64_t>(rows[0].logits.size());
    Sampler sampler(*ops_, process_compute_pool(2), vocab, static_cast<int64_t>(rows.size()));
    OwnedTensor logits(DType::kFloat32, {static_cast<int64_t>(rows.size()), vocab});
    std::vector<SampleJob> jobs;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy(rows[i].logits.begin(), rows[i].logits.end(), logits.view().data<float>() + static_cast<int64_t>(i) * vocab);
      jobs.push_back({.logit_row = static_cast<int64_t>(i),
                      .sampling = &rows[i].sampling,
                      .tokens = rows[i].tokens.data(),
                      .position = static_cast<int32_t>(rows[i].tokens.size()),
                      .mask = mask});
    }
    std::vector<int32_t> ids(rows.size());
    std::vector<RowStatus> status(rows.size());
    sampler.sample(logits.view(), jobs, ids, status);
    if (status_out != nullptr) *status_out = status;
    return ids;
  }

  int32_t sample_one(const Row& row) { return sample({row})[0]; }

  /// A row with everything on at random, ties included.
  Row random_row(std::mt19937& random) const {
    const auto number = [&](double low, double high) { return static_cast<float>(std::uniform_real_distribution<>(low, high)(random)); };
    const auto below = [&](int64_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
    Row row;
    for (int64_t i = 0; i < vocab_; ++i) row.logits.push_back(std::round(number(-6, 6) * 4) / 4);
    for (int i = 0; i < 12; ++i) row.tokens.push_back(below(vocab_));
    RowSampling& s = row.sampling;
    s.prompt_tokens = 5;
    s.temperature = below(5) == 0 ? 0 : number(0.2, 2);
    s.top_k = below(2) == 0 ? 0 : 1 + below(vocab_);
    s.top_p = below(2) == 0 ? 1 : number(0.1, 1);
    s.min_p = below(3) == 0 ? number(0, 0.3) : 0;
    if (below(2) == 0) {
      s.presence_penalty = number(-2, 2);
      s.frequency_penalty = number(-2, 2);
      s.repetition_penalty = number(0.5, 2);
    }
    if (below(2) == 0) s.logit_bias = {{below(vocab_), number(-5, 5)}, {below(vocab_), number(-100, 100)}};
    if (below(2) == 0) {
      s.banned_before_min = {below(vocab_), below(vocab_)};
      s.min_tokens = 6 + below(3);  // 7 output tokens are there: sometimes over, sometimes not
    }
    s.seed = random();
    s.choice = below(3);
    return row;
  }

  int64_t vocab_;
  std::unique_ptr<Ops> ops_;
};

TEST_F(SamplerTest, GreedyTakesTheLowestIdOfEqualLogits) {
  Row row{.logits = std::vector<float>(200, 1.0f), .sampling = {}, .tokens = {0}};
  row.logits[150] = row.logits[77] = row.logits[199] = 3.0f;
  EXPECT_EQ(sample_one(row), 77);
}

TEST_F(SamplerTest, AgreesWithTheReferenceUnderEveryCombination) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    const Row row = random_row(random);
    const int32_t expected =
        reference_draw({row.logits.begin(), row.logits.end()}, row.sampling, row.tokens, static_cast<int>(row.tokens.size()));
    ASSERT_EQ(sample_one(row), expected) << "trial " << trial;
  }
}

TEST_F(SamplerTest, AgreesWithTheReferenceOverALargeVocabulary) {
  std::mt19937 random(11);
  vocab_ = 20011;
  for (int trial = 0; trial < 40; ++trial) {
    Row row = random_row(random);
    // Distinct values: sums over a large vocabulary must not decide between equals.
    for (float& logit : row.logits) logit = static_cast<float>(std::normal_distribution<>(0, 2)(random));
    const int32_t expected =
        reference_draw({row.logits.begin(), row.logits.end()}, row.sampling, row.tokens, static_cast<int>(row.tokens.size()));
    ASSERT_EQ(sample_one(row), expected) << "trial " << trial << " T " << row.sampling.temperature << " k " << row.sampling.top_k << " p "
                                         << row.sampling.top_p;
  }
}

TEST_F(SamplerTest, ARowDoesNotDependOnItsBatch) {
  std::mt19937 random(3);
  std::vector<Row> rows;
  for (int i = 0; i < 40; ++i) rows.push_back(random_row(random));
  const std::vector<int32_t> together = sample(rows);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(sample_one(rows[i]), together[i]) << i;
  std::reverse(rows.begin(), rows.end());
  std::vector<int32_t> reversed = sample(rows);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(reversed, together);
}

TEST_F(SamplerTest, ATieAtTheCutKeepsTheLowerId) {
  Row row{.logits = {0, 2, 1, 1, 1, -3}, .sampling = {}, .tokens = {0}};
  row.sampling.temperature = 50;  // nearly uniform over what is kept
  row.sampling.top_k = 3;
  std::map<int32_t, int> counts;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    row.sampling.seed = seed;
    ++counts[sample_one(row)];
  }
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(2) && counts.contains(3));
}

TEST_F(SamplerTest, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = {2.0f, 1.0f, 0.5f, 0.0f, -0.5f, -1.0f, 1.5f, -2.0f};
  struct Case {
    float temperature;
    int32_t top_k;
    float top_p;
  };
  for (const Case& c : {Case{1, 0, 1}, Case{0.5f, 0, 1}, Case{1, 3, 1}, Case{1, 0, 0.8f}, Case{2, 5, 0.9f}}) {
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
    if (c.top_k > 0) order.resize(static_cast<size_t>(c.top_k));
    const auto weight = [&](int32_t id) { return std::exp(static_cast<double>(logits[static_cast<size_t>(id)] / c.temperature)); };
    double total = 0;
    for (const int32_t id : order) total += weight(id);
    double kept_total = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (c.top_p < 1 && kept_total >= static_cast<double>(c.top_p) * total)
        order.resize(i);
      else
        kept_total += weight(order[i]);
    }

    constexpr int kDraws = 20000;
    std::map<int32_t, int> counts;
    Row row{.logits = logits, .sampling = {}, .tokens = {0}};
    row.sampling.temperature = c.temperature;
    row.sampling.top_k = c.top_k;
    row.sampling.top_p = c.top_p;
    for (int i = 0; i < kDraws; i += 100) {
      std::vector<Row> rows(100, row);
      for (int j = 0; j < 100; ++j) rows[static_cast<size_t>(j)].sampling.seed = static_cast<uint64_t>(i + j);
      for (const int32_t id : sample(rows)) ++counts[id];
    }
    double chi_square = 0;
    int drawn = 0;
    for (const int32_t id : order) {
      const double expected = kDraws * weight(id) / kept_total;
      chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
      drawn += counts[id];
    }
    EXPECT_EQ(drawn, kDraws) << "a token outside the cut was drawn";
    EXPECT_LT(chi_square, 29.9) << "1e-4 quantile at 7 degrees of freedom";
  }
}

TEST_F(SamplerTest, ChoicesAndPositionsDrawDifferently) {
  Row row{.logits = std::vector<float>(1000, 0.0f), .sampling = {}, .tokens = {0, 1, 2}};
  row.sampling.temperature = 1;
  row.sampling.seed = 42;
  const int32_t first = sample_one(row);
  EXPECT_EQ(sample_one(row), first);
  row.sampling.choice = 1;
  EXPECT_NE(sample_one(row), first);
  row.sampling.choice = 0;
  row.tokens.push_back(3);
  EXPECT_NE(sample_one(row), first);
}

TEST_F(SamplerTest, ATinyTemperatureIsGreedy) {
  std::mt19937 random(5);
  for (const float temperature : {1e-6f, 1e-30f, 1e-38f}) {
    Row row = random_row(random);
    row.logits[5] = 1000;
    row.logits[9] = -1000;
    row.sampling = {};
    row.sampling.temperature = temperature;
    EXPECT_EQ(sample_one(row), 5);
    row.sampling.top_p = 0.9f;
    EXPECT_EQ(sample_one(row), 5);
    row.sampling.top_k = 20;
    EXPECT_EQ(sample_one(row), 5);
  }
}

TEST_F(SamplerTest, NanFailsItsRowOnly) {
  std::mt19937 random(1);
  std::vector<Row> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back(random_row(random));
    rows.back().sampling = {};
    rows.back().sampling.temperature = i == 2 ? 1.0f : 0.0f;
  }
  const std::vector<int32_t> clean = sample(rows);
  rows[1].logits[30] = std::nanf("");
  std::vector<RowStatus> status;
  const std::vector<int32_t> ids = sample(rows, &status);
  EXPECT_EQ(status, (std::vector<RowStatus>{RowStatus::kOk, RowStatus::kNanLogits, RowStatus::kOk}));
  EXPECT_EQ(ids, (std::vector<int32_t>{clean[0], -1, clean[2]}));
  rows[1].sampling.banned_before_min = {30};  // a ban does not hide it
  rows[1].sampling.min_tokens = 100;
  sample(rows, &status);
  EXPECT_EQ(status[1], RowStatus::kNanLogits);
}

TEST_F(SamplerTest, NothingAllowedFailsTheRow) {
  Row row{.logits = {1, 2, 3}, .sampling = {}, .tokens = {0}};
  row.sampling.banned_before_min = {0, 1, 2};
  row.sampling.min_tokens = 4;
  row.sampling.prompt_tokens = 1;
  std::vector<RowStatus> status;
  EXPECT_EQ(sample({row}, &status)[0], -1);
  EXPECT_EQ(status[0], RowStatus::kEmptyMask);
}

TEST_F(SamplerTest, MaskedTokensAreNeverDrawn) {
  const std::vector<uint32_t> mask = {0, 1u << 3};  // token 35 alone
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    Row row = random_row(random);
    row.sampling.banned_before_min.clear();
    EXPECT_EQ(sample({row}, nullptr, mask.data())[0], 35);
  }
}

TEST_F(SamplerTest, InfiniteLogitsAreDecidedNotBroken) {
  Row row{.logits = {-HUGE_VALF, 1, HUGE_VALF, HUGE_VALF}, .sampling = {}, .tokens = {0}};
  row.sampling.temperature = 1;
  EXPECT_EQ(sample_one(row), 2);
  row.logits = {-HUGE_VALF, 1, -HUGE_VALF, -HUGE_VALF};
  EXPECT_EQ(sample_one(row), 1);
  row.sampling.top_p = 0.5f;
  EXPECT_EQ(sample_one(row), 1);
}

TEST_F(SamplerTest, PenaltiesCountPromptAndOutputAsDocumented) {
  // Token 1 is in the prompt, 2 twice in the output; 3 nowhere.
  Row row{.logits = {0, 4, 4, 3}, .sampling = {}, .tokens = {1, 2, 2}};
  row.sampling.prompt_tokens = 1;
  EXPECT_EQ(sample_one(row), 1);
  row.sampling.presence_penalty = 1.5f;  // output only: 2 falls to 2.5
  EXPECT_EQ(sample_one(row), 1);
  row.sampling.repetition_penalty = 2;  // 1 falls to 2, 2 to 0.5
  EXPECT_EQ(sample_one(row), 3);
  row.sampling = {};
  row.sampling.prompt_tokens = 1;
  row.sampling.logit_bias = {{1, -10.0f}};
  row.sampling.frequency_penalty = 0.4f;  // 2 falls to 3.2
  EXPECT_EQ(sample_one(row), 2);
  row.sampling.frequency_penalty = 0.6f;  // 2 falls to 2.8
  EXPECT_EQ(sample_one(row), 3);
}

}  // namespace
}  // namespace minisgl
