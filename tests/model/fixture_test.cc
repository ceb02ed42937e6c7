// The fixture models against Hugging Face, teacher-forced: prompt and greedy continuation are fed once, and the logits of every position
// are compared with what Hugging Face computed in float32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_path.h"
#include "model/decoder_harness.h"
#include "model/fixtures.h"

namespace minisgl {
namespace {

/// Logits of a sequence, seen as one row per token.
class LogitRows {
 public:
  LogitRows(std::vector<float> logits, int64_t vocab) : logits_(std::move(logits)), vocab_(vocab) {}

  float logit(int64_t row, int32_t id) const { return logits_[static_cast<size_t>(row * vocab_ + id)]; }
  int32_t argmax(int64_t row) const {
    const auto begin = logits_.begin() + row * vocab_;
    return static_cast<int32_t>(std::max_element(begin, begin + vocab_) - begin);
  }
  double logprob(int64_t row, int32_t id) const {
    const double largest = logit(row, argmax(row));
    double sum = 0;
    for (int32_t i = 0; i < vocab_; ++i) sum += std::exp(logit(row, i) - largest);
    return logit(row, id) - largest - std::log(sum);
  }

 private:
  std::vector<float> logits_;
  int64_t vocab_;
};

DecoderHarness::Options options(DType dtype, int64_t max_length) {
  DecoderHarness::Options result;
  result.dtype = dtype;
  result.max_length = max_length;
  result.threads = 2;
  return result;
}

/// Largest deviations of a float32 run from the expected values.
struct Float32Error {
  double relative_logit = 0;  ///< of the top-5 logits, relative to the step's largest
  double prompt_logprob = 0;
  int wrong_tokens = 0;
};

void compare(const fixtures::Case& c, const LogitRows& rows, Float32Error& error) {
  const auto prompt = static_cast<int64_t>(c.input_ids.size());
  for (size_t step = 0; step < c.greedy.size(); ++step) {
    const int64_t row = prompt - 1 + static_cast<int64_t>(step);
    if (rows.argmax(row) != c.greedy[step]) ++error.wrong_tokens;
    const fixtures::TopTokens& top = c.top5[step];
    for (size_t i = 0; i < top.ids.size(); ++i) {
      const double difference = std::abs(rows.logit(row, top.ids[i]) - top.logits[i]);
      error.relative_logit = std::max(error.relative_logit, difference / std::abs(top.logits[0]));
    }
  }
  for (size_t i = 0; i < c.prompt_logprobs.size(); ++i) {
    const double logprob = rows.logprob(static_cast<int64_t>(i), c.input_ids[i + 1]);
    error.prompt_logprob = std::max(error.prompt_logprob, std::abs(logprob - c.prompt_logprobs[i]));
  }
}

void load(DecoderHarness& harness, const fixtures::Model& fixture) {
  harness.decoder().load(*open_checkpoint(resolve_model_path(fixture.folder.string())), {});
}

class FixtureTest : public testing::TestWithParam<std::string> {};

TEST_P(FixtureTest, Float32MatchesHuggingFace) {
  const fixtures::Model fixture = fixtures::load(GetParam());
  const ModelConfig config = load_model_config(fixture.folder);
  DecoderHarness harness(config, options(DType::kFloat32, 320));
  load(harness, fixture);
  ASSERT_EQ(fixture.cases.size(), 8u);
  Float32Error error;
  for (const fixtures::Case& c : fixture.cases) {
    ASSERT_EQ(c.greedy.size(), 32u);
    compare(c, LogitRows(harness.run(fixtures::teacher_forced(c)), config.vocab_size), error);
  }
  std::printf("%-22s float32: top-5 logits within %.2g of the largest, prompt log-probabilities within %.2g\n", fixture.name.c_str(),
              error.relative_logit, error.prompt_logprob);
  EXPECT_EQ(error.wrong_tokens, 0);
  EXPECT_LE(error.relative_logit, 1e-4);
  EXPECT_LE(error.prompt_logprob, 1e-3);
}

/// The p-th percentile, interpolated linearly between the neighbouring order statistics.
double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  const double place = p / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
}

// The gate of docs/numerics.md: bfloat16 may be off as much as Hugging Face's own bfloat16 is, and a little.
TEST_P(FixtureTest, BFloat16PassesTheGate) {
  const fixtures::Model fixture = fixtures::load(GetParam());
  const ModelConfig config = load_model_config(fixture.folder);
  DecoderHarness harness(config, options(DType::kBFloat16, 320));
  load(harness, fixture);
  std::vector<double> errors;
  int top1_agree = 0;
  for (const fixtures::Case& c : fixture.cases) {
    const LogitRows rows(harness.run(fixtures::teacher_forced(c)), config.vocab_size);
    for (size_t i = 0; i < c.prompt_logprobs.size(); ++i) {
      errors.push_back(std::abs(rows.logprob(static_cast<int64_t>(i), c.input_ids[i + 1]) - c.prompt_logprobs[i]));
    }
    for (size_t step = 0; step < c.greedy.size(); ++step) {
      const auto row = static_cast<int64_t>(c.input_ids.size() - 1 + step);
      const fixtures::TopTokens& top = c.top5[step];
      ASSERT_EQ(top.ids[0], c.greedy[step]);
      if (rows.argmax(row) == c.greedy[step]) ++top1_agree;
      errors.push_back(std::abs(rows.logprob(row, c.greedy[step]) - top.logprobs[0]));  // as a token of the sequence
      for (size_t i = 0; i < top.ids.size(); ++i) errors.push_back(std::abs(rows.logprob(row, top.ids[i]) - top.logprobs[i]));
    }
  }
  double mean = 0;
  for (const double error : errors) mean += error / static_cast<double>(errors.size());
  const double p99 = percentile(errors, 99);
  std::printf("%-22s bfloat16: mean %.5f (Hugging Face %.5f), p99 %.4f (%.4f), top-1 %d (%d) of 256\n", fixture.name.c_str(), mean,
              fixture.bf16.mean, p99, fixture.bf16.p99, top1_agree, fixture.bf16.top1_agree);
  EXPECT_LE(mean, 1.25 * fixture.bf16.mean);
  EXPECT_LE(p99, 1.5 * fixture.bf16.p99);
  EXPECT_GE(top1_agree, fixture.bf16.top1_agree - 4);
}

class ThreeThousandTokenTest : public testing::TestWithParam<std::string> {};

TEST_P(ThreeThousandTokenTest, Float32MatchesHuggingFace) {
  const fixtures::Model fixture = fixtures::load(GetParam());
  ASSERT_TRUE(fixture.long_case.has_value());
  const fixtures::Case& c = *fixture.long_case;
  const ModelConfig config = load_model_config(fixture.folder);
  DecoderHarness harness(config, options(DType::kFloat32, 3072));
  load(harness, fixture);
  Float32Error error;
  compare(c, LogitRows(harness.run(fixtures::teacher_forced(c), 1000), config.vocab_size), error);
  std::printf("%-22s float32, %zu tokens: top-5 logits within %.2g of the largest\n", fixture.name.c_str(), c.input_ids.size(),
              error.relative_logit);
  EXPECT_EQ(error.wrong_tokens, 0);
  EXPECT_LE(error.relative_logit, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, FixtureTest, testing::ValuesIn(fixtures::model_names()), fixtures::test_name);

INSTANTIATE_TEST_SUITE_P(Models, ThreeThousandTokenTest, testing::ValuesIn(fixtures::long_model_names()), fixtures::test_name);

}  // namespace
}  // namespace minisgl
