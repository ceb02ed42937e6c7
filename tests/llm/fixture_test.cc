#include <gtest/gtest.h>

#include <cmath>

#include "llm/llm_test_util.h"

/// Every fixture model through the public interface, against what Hugging Face computed in float32.
namespace minisgl {
namespace {

using test::fixture_config;
using test::generate_one;
using test::greedy_request;

class FixtureModel : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, FixtureModel, ::testing::ValuesIn(fixtures::model_names()), fixtures::test_name);

TEST_P(FixtureModel, GreedyTokensAloneAndTogether) {
  const fixtures::Model model = fixtures::load(GetParam());
  LLM llm(fixture_config(GetParam()));
  std::vector<GenerateRequest> requests;
  for (const fixtures::Case& c : model.cases) {
    requests.push_back(greedy_request(c.input_ids));
    const GenerateResult alone = generate_one(llm, requests.back());
    EXPECT_EQ(alone.token_ids, c.greedy) << (alone.error ? alone.error->message : "");
    EXPECT_EQ(alone.finish_reason, FinishReason::kLength);
    EXPECT_EQ(alone.prompt_token_ids, c.input_ids);
  }
  ASSERT_EQ(model.cases.size(), 8u);
  const std::vector<GenerateResult> together = llm.generate(requests);
  ASSERT_EQ(together.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(together[i].index, static_cast<int64_t>(i));
    EXPECT_EQ(together[i].token_ids, model.cases[i].greedy) << i;
  }
}

TEST_P(FixtureModel, LogprobsOfPromptAndOutput) {
  const fixtures::Model model = fixtures::load(GetParam());
  LLM llm(fixture_config(GetParam()));
  std::vector<GenerateRequest> requests;
  for (const fixtures::Case& c : model.cases) {
    requests.push_back(greedy_request(c.input_ids));
    requests.back().sampling.logprobs = 5;
    requests.back().sampling.prompt_logprobs = 0;
  }
  const std::vector<GenerateResult> results = llm.generate(requests);
  for (size_t i = 0; i < results.size(); ++i) {
    const fixtures::Case& c = model.cases[i];
    ASSERT_EQ(results[i].prompt_logprobs.size(), c.input_ids.size());
    EXPECT_FALSE(results[i].prompt_logprobs[0]);
    for (size_t p = 1; p < c.input_ids.size(); ++p) {
      ASSERT_TRUE(results[i].prompt_logprobs[p]);
      EXPECT_EQ(results[i].prompt_logprobs[p]->token_id, c.input_ids[p]);
      EXPECT_NEAR(results[i].prompt_logprobs[p]->logprob, c.prompt_logprobs[p - 1], 1e-3);
    }
    ASSERT_EQ(results[i].logprobs.size(), c.greedy.size());
    for (size_t step = 0; step < c.greedy.size(); ++step) {
      const TokenLogprob& logprob = results[i].logprobs[step];
      EXPECT_EQ(logprob.token_id, c.greedy[step]);
      ASSERT_EQ(logprob.top.size(), 5u);
      EXPECT_EQ(logprob.top[0].first, c.greedy[step]);
      EXPECT_EQ(logprob.top[0].second, logprob.logprob);
      for (size_t k = 0; k < 5; ++k) EXPECT_NEAR(logprob.top[k].second, c.top5[step].logprobs[k], 1e-3);
    }
  }
}

/// The promise of tier A: nothing about how the work is cut changes a bit.
TEST_P(FixtureModel, ChunksPagesAndBatchesDoNotChangeABit) {
  const fixtures::Model model = fixtures::load(GetParam());
  std::vector<GenerateRequest> requests;
  for (const fixtures::Case& c : model.cases) {
    requests.push_back(greedy_request(c.input_ids, 12));
    requests.back().sampling.logprobs = 3;
    requests.back().sampling.prompt_logprobs = 1;
  }
  requests[1].sampling.temperature = 1.0;
  requests[1].sampling.seed = 7;
  requests[2].sampling.temperature = 0.8;
  requests[2].sampling.top_p = 0.9;
  requests[2].sampling.seed = 8;
  requests[3].sampling.repetition_penalty = 1.3;
  requests[3].sampling.presence_penalty = 0.5;

  LLM reference_llm(fixture_config(GetParam()));
  const std::vector<GenerateResult> reference = reference_llm.generate(requests);
  struct Variant {
    int64_t page_size;
    int64_t max_prefill_tokens;
    int64_t max_running_requests;
  };
  for (const Variant& variant : {Variant{1, 8192, 16}, Variant{5, 7, 3}, Variant{16, 64, 1}}) {
    EngineConfig config = fixture_config(GetParam());
    config.page_size = variant.page_size;
    config.max_prefill_tokens = variant.max_prefill_tokens;
    config.max_running_requests = variant.max_running_requests;
    LLM llm(config);
    const std::vector<GenerateResult> results = llm.generate(requests);
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_EQ(results[i].token_ids, reference[i].token_ids) << "page size " << variant.page_size << ", prompt " << i;
      for (size_t t = 0; t < results[i].logprobs.size(); ++t) {
        EXPECT_EQ(results[i].logprobs[t].logprob, reference[i].logprobs[t].logprob);
        EXPECT_EQ(results[i].logprobs[t].top, reference[i].logprobs[t].top);
      }
      ASSERT_EQ(results[i].prompt_logprobs.size(), reference[i].prompt_logprobs.size());
      for (size_t p = 1; p < results[i].prompt_logprobs.size(); ++p) {
        EXPECT_EQ(results[i].prompt_logprobs[p]->logprob, reference[i].prompt_logprobs[p]->logprob);
        EXPECT_EQ(results[i].prompt_logprobs[p]->top, reference[i].prompt_logprobs[p]->top);
      }
    }
  }
}

class ThreeThousandTokenPrompt : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, ThreeThousandTokenPrompt, ::testing::ValuesIn(fixtures::long_model_names()), fixtures::test_name);

TEST_P(ThreeThousandTokenPrompt, WholeInChunksAndCached) {
  const fixtures::Model model = fixtures::load(GetParam());
  ASSERT_TRUE(model.long_case.has_value());
  for (const int64_t chunk : {8192, 257}) {
    EngineConfig config = fixture_config(GetParam());
    config.max_prefill_tokens = chunk;
    LLM llm(config);
    for (const bool cached : {false, true}) {
      const GenerateResult result = generate_one(llm, greedy_request(model.long_case->input_ids));
      EXPECT_EQ(result.token_ids, model.long_case->greedy) << (result.error ? result.error->message : "");
      EXPECT_EQ(result.cached_tokens > 0, cached);
    }
  }
}

}  // namespace
}  // namespace minisgl
