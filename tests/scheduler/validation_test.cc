#include "scheduler/validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "base/error.h"

namespace minisgl {
namespace {

RequestLimits limits() {
  RequestLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 64;
  limits.page_size = 4;
  limits.num_pages = 32;
  limits.eos_token_ids = {7, 9};
  limits.tokenizer = Tokenizer::load_tokenizer_json(MINISGL_TEST_DATA "/models/tiny-qwen3/tokenizer.json");
  return limits;
}

/// The field and kind of the refusal.
std::pair<std::string, ErrorKind> refusal(const std::vector<int32_t>& prompt, const SamplingParams& sampling,
                                          const RequestLimits& limits = minisgl::limits()) {
  try {
    make_request(prompt, sampling, 1, 0, limits);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return {error.param(), error.kind()};
  }
  return {"", ErrorKind::kInternal};
}

TEST(Validation, EveryFieldOutOfRangeIsNamed) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, std::function<void(SamplingParams&)>>> faults = {
      {"max_tokens", [](SamplingParams& s) { s.max_tokens = 0; }},
      {"max_tokens", [](SamplingParams& s) { s.max_tokens = -5; }},
      {"temperature", [&](SamplingParams& s) { s.temperature = nan; }},
      {"temperature", [&](SamplingParams& s) { s.temperature = infinity; }},
      {"temperature", [](SamplingParams& s) { s.temperature = -0.1; }},
      {"top_k", [](SamplingParams& s) { s.top_k = -2; }},
      {"top_p", [](SamplingParams& s) { s.top_p = 0; }},
      {"top_p", [](SamplingParams& s) { s.top_p = 1.01; }},
      {"top_p", [&](SamplingParams& s) { s.top_p = nan; }},
      {"min_p", [](SamplingParams& s) { s.min_p = -0.1; }},
      {"min_p", [&](SamplingParams& s) { s.min_p = nan; }},
      {"n", [](SamplingParams& s) { s.n = 0; }},
      {"n", [](SamplingParams& s) { s.n = 129; }},
      {"min_tokens", [](SamplingParams& s) { s.min_tokens = -1; }},
      {"min_tokens", [](SamplingParams& s) { s.min_tokens = 5, s.max_tokens = 4; }},
      {"presence_penalty", [](SamplingParams& s) { s.presence_penalty = 2.1; }},
      {"frequency_penalty", [&](SamplingParams& s) { s.frequency_penalty = nan; }},
      {"repetition_penalty", [](SamplingParams& s) { s.repetition_penalty = 0; }},
      {"repetition_penalty", [&](SamplingParams& s) { s.repetition_penalty = infinity; }},
      {"logprobs", [](SamplingParams& s) { s.logprobs = 21; }},
      {"logprobs", [](SamplingParams& s) { s.logprobs = -2; }},
      {"prompt_logprobs", [](SamplingParams& s) { s.prompt_logprobs = 21; }},
      {"logit_bias",
       [](SamplingParams& s) {
         s.logit_bias = {{100, 1.0}};
       }},
      {"logit_bias",
       [](SamplingParams& s) {
         s.logit_bias = {{1, 100.5}};
       }},
      {"logit_bias",
       [&](SamplingParams& s) {
         s.logit_bias = {{1, nan}};
       }},
      {"stop_token_ids", [](SamplingParams& s) { s.stop_token_ids = {-1}; }},
      {"stop",
       [](SamplingParams& s) {
         s.stop = {"ok", ""};
       }},
      {"stop", [](SamplingParams& s) { s.stop = {"\x80"}; }},
  };
  for (const auto& [field, break_sampling] : faults) {
    SamplingParams sampling;
    break_sampling(sampling);
    EXPECT_EQ(refusal({1, 2}, sampling), (std::pair{field, ErrorKind::kInvalidRequest})) << field;
  }
  EXPECT_EQ(refusal({1, 2}, {}).first, "");
}

TEST(Validation, PromptsAreChecked) {
  EXPECT_EQ(refusal({}, {}), (std::pair{std::string("prompt"), ErrorKind::kInvalidRequest}));
  EXPECT_EQ(refusal({5, 100}, {}), (std::pair{std::string("prompt"), ErrorKind::kInvalidRequest}));
  EXPECT_EQ(refusal({5, -1}, {}), (std::pair{std::string("prompt"), ErrorKind::kInvalidRequest}));
  EXPECT_EQ(refusal(std::vector<int32_t>(64, 1), {}), (std::pair{std::string("prompt"), ErrorKind::kContextLengthExceeded}));
  EXPECT_EQ(refusal(std::vector<int32_t>(63, 1), {}).first, "");
}

TEST(Validation, OutputIsCutToTheRestOfTheLimit) {
  SamplingParams sampling;
  sampling.max_tokens = 1000;
  EXPECT_EQ(make_request(std::vector<int32_t>(60, 1), sampling, 1, 0, limits())->max_tokens, 4);
  EXPECT_EQ(make_request({1}, {}, 1, 0, limits())->max_tokens, 63) << "by default the rest, at most 1,024";
  sampling.max_tokens = kRestOfContext;
  EXPECT_EQ(make_request(std::vector<int32_t>(60, 1), sampling, 1, 0, limits())->max_tokens, 4);
  RequestLimits wide = limits();
  wide.max_model_len = 5000;
  wide.num_pages = 2000;
  EXPECT_EQ(make_request({1}, {}, 1, 0, wide)->max_tokens, 1024);
  EXPECT_EQ(make_request({1}, sampling, 1, 0, wide)->max_tokens, 4999);
}

TEST(Validation, WhatCanNeverFitIntoThePoolIsRefused) {
  RequestLimits small = limits();
  small.num_pages = 3;  // an explicit limit above the pool
  SamplingParams sampling;
  sampling.max_tokens = 12;
  EXPECT_EQ(refusal({1}, sampling, small), (std::pair{std::string("max_tokens"), ErrorKind::kContextLengthExceeded}));
  sampling.max_tokens = 11;
  EXPECT_EQ(refusal({1}, sampling, small).first, "");
  EXPECT_EQ(refusal(std::vector<int32_t>(12, 1), {}, small).second, ErrorKind::kContextLengthExceeded);
  EXPECT_EQ(make_request({1}, {}, 1, 0, small)->max_tokens, 11) << "what was not asked for is cut to the pool";
}

TEST(Validation, StopStringsNeedATokenizer) {
  RequestLimits bare = limits();
  bare.tokenizer.reset();
  SamplingParams sampling;
  sampling.stop = {"x"};
  EXPECT_EQ(refusal({1}, sampling, bare).first, "stop");
}

TEST(Validation, ModelDefaultsApplyOnlyWithDoSample) {
  RequestLimits with = limits();
  with.generation = {.do_sample = true, .temperature = 0.6, .top_k = 20, .top_p = 0.95, .min_p = {}, .repetition_penalty = 1.1};
  const RowSampling row = make_request({1}, {}, 1, 0, with)->sampling;
  EXPECT_FLOAT_EQ(row.temperature, 0.6f);
  EXPECT_EQ(row.top_k, 20);
  EXPECT_FLOAT_EQ(row.top_p, 0.95f);
  EXPECT_FLOAT_EQ(row.repetition_penalty, 1.1f);
  EXPECT_EQ(describe_generation_defaults(with.generation), "temperature 0.6, top_k 20, top_p 0.95, repetition_penalty 1.1");

  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.top_k = -1;
  EXPECT_EQ(make_request({1}, sampling, 1, 0, with)->sampling.temperature, 0) << "the request wins";
  EXPECT_EQ(make_request({1}, sampling, 1, 0, with)->sampling.top_k, 0);

  with.generation.do_sample = false;
  EXPECT_EQ(make_request({1}, {}, 1, 0, with)->sampling.temperature, 0);
  EXPECT_EQ(make_request({1}, {}, 1, 0, with)->sampling.repetition_penalty, 1);
  EXPECT_EQ(describe_generation_defaults(with.generation), "");
}

TEST(Validation, ExtremeNumbersStayUsable) {
  SamplingParams sampling;
  sampling.temperature = 1e-300;
  sampling.top_p = 1e-300;
  sampling.repetition_penalty = 1e300;
  const RowSampling row = make_request({1}, sampling, 1, 0, limits())->sampling;
  EXPECT_GT(row.temperature, 0);
  EXPECT_GT(row.top_p, 0);
  EXPECT_TRUE(std::isfinite(row.repetition_penalty));
}

TEST(Validation, MinTokensBansEveryEnd) {
  SamplingParams sampling;
  sampling.min_tokens = 3;
  sampling.stop_token_ids = {50};
  EXPECT_EQ(make_request({1}, sampling, 1, 0, limits())->sampling.banned_before_min, (std::vector<int32_t>{7, 9, 50}));
  sampling.ignore_eos = true;
  const auto request = make_request({1}, sampling, 1, 0, limits());
  EXPECT_EQ(request->sampling.banned_before_min, std::vector<int32_t>{50});
  EXPECT_TRUE(request->eos_token_ids.empty());
}

}  // namespace
}  // namespace minisgl
