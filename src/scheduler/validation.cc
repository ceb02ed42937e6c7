#include "scheduler/validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace minisgl {

namespace {

constexpr int kMaxChoices = 128;
constexpr int kMaxTopLogprobs = 20;

void check_field(bool good, const char* field, double value, const char* allowed) {
  if (!good) fail_param(ErrorKind::kInvalidRequest, field, "{} is {}; allowed is {}", field, value, allowed);
}

void check_token(int64_t id, const char* field, int64_t vocab_size) {
  if (id < 0 || id >= vocab_size) {
    fail_param(ErrorKind::kInvalidRequest, field, "{} has token id {}; the model's ids are 0 to {}", field, id, vocab_size - 1);
  }
}

bool within(double value, double low, double high) {
  return value >= low && value <= high;
}  // false for NaN

/// A positive double as a float32 that is still positive and finite.
float to_positive_float(double value) {
  return static_cast<float>(std::clamp<double>(value, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()));
}

/// The request's value, else the model's where its file asks for sampling, else `fallback`.
template <typename T>
T resolve(const std::optional<T>& asked, bool do_sample, const std::optional<T>& of_model, T fallback) {
  if (asked) return *asked;
  return do_sample && of_model ? *of_model : fallback;
}

RowSampling resolve_sampling(const SamplingParams& sampling, const RequestLimits& limits) {
  const GenerationDefaults& model = limits.generation;
  const double temperature = resolve(sampling.temperature, model.do_sample, model.temperature, 0.0);
  const int64_t top_k = resolve<int64_t>(sampling.top_k, model.do_sample, model.top_k, -1);
  RowSampling row;
  row.temperature = temperature > 0 ? to_positive_float(temperature) : 0;
  row.top_k = top_k > 0 && top_k < limits.vocab_size ? static_cast<int32_t>(top_k) : 0;
  row.top_p = std::min(to_positive_float(resolve(sampling.top_p, model.do_sample, model.top_p, 1.0)), 1.0f);
  row.min_p = static_cast<float>(std::clamp(resolve(sampling.min_p, model.do_sample, model.min_p, 0.0), 0.0, 1.0));
  row.presence_penalty = static_cast<float>(sampling.presence_penalty);
  row.frequency_penalty = static_cast<float>(sampling.frequency_penalty);
  row.repetition_penalty = to_positive_float(resolve(sampling.repetition_penalty, model.do_sample, model.repetition_penalty, 1.0));
  for (const auto& [id, bias] : sampling.logit_bias) row.logit_bias.emplace_back(id, static_cast<float>(bias));
  row.logprobs = sampling.logprobs;
  return row;
}

}  // namespace

void check_sampling_params(const SamplingParams& s, const RequestLimits& limits) {
  constexpr double kMax = std::numeric_limits<double>::max();
  if (s.max_tokens) check_field(*s.max_tokens >= 1, "max_tokens", static_cast<double>(*s.max_tokens), "1 or more");
  if (s.temperature) check_field(within(*s.temperature, 0, kMax), "temperature", *s.temperature, "0 or more, finite");
  if (s.top_k) check_field(*s.top_k >= -1, "top_k", static_cast<double>(*s.top_k), "-1 or 0 (all), or 1 and more");
  if (s.top_p) check_field(within(*s.top_p, 0, 1) && *s.top_p > 0, "top_p", *s.top_p, "more than 0 and at most 1");
  if (s.min_p) check_field(within(*s.min_p, 0, 1), "min_p", *s.min_p, "0 to 1");
  check_field(s.n >= 1 && s.n <= kMaxChoices, "n", s.n, "1 to 128");
  check_field(s.min_tokens >= 0, "min_tokens", static_cast<double>(s.min_tokens), "0 or more");
  check_field(within(s.presence_penalty, -2, 2), "presence_penalty", s.presence_penalty, "-2 to 2");
  check_field(within(s.frequency_penalty, -2, 2), "frequency_penalty", s.frequency_penalty, "-2 to 2");
  if (s.repetition_penalty) {
    check_field(within(*s.repetition_penalty, 0, kMax) && *s.repetition_penalty > 0, "repetition_penalty", *s.repetition_penalty,
                "more than 0, finite");
  }
  check_field(s.logprobs >= -1 && s.logprobs <= kMaxTopLogprobs, "logprobs", s.logprobs, "-1 (none) to 20");
  check_field(s.prompt_logprobs >= -1 && s.prompt_logprobs <= kMaxTopLogprobs, "prompt_logprobs", s.prompt_logprobs, "-1 (none) to 20");
  for (const auto& [id, bias] : s.logit_bias) {
    check_token(id, "logit_bias", limits.vocab_size);
    check_field(within(bias, -100, 100), "logit_bias", bias, "-100 to 100");
  }
  for (const int32_t id : s.stop_token_ids) check_token(id, "stop_token_ids", limits.vocab_size);
  for (const std::string& stop : s.stop) {
    if (stop.empty()) fail_param(ErrorKind::kInvalidRequest, "stop", "stop has an empty string");
    // A stop string that starts in the middle of a character would cut one in half.
    if ((static_cast<unsigned char>(stop[0]) & 0xC0u) == 0x80u) fail_param(ErrorKind::kInvalidRequest, "stop", "stop is not valid UTF-8");
  }
  if (!s.stop.empty() && !limits.tokenizer) {
    fail_param(ErrorKind::kInvalidRequest, "stop", "stop needs a tokenizer; this engine runs without one: use stop_token_ids");
  }
}

std::shared_ptr<Request> make_request(std::vector<int32_t> prompt_token_ids, const SamplingParams& sampling, uint64_t seed, int choice,
                                      const RequestLimits& limits) {
  check_sampling_params(sampling, limits);
  const auto prompt_tokens = static_cast<int64_t>(prompt_token_ids.size());
  if (prompt_tokens == 0) fail_param(ErrorKind::kInvalidRequest, "prompt", "the prompt has no tokens; at least one is needed");
  for (const int32_t id : prompt_token_ids) check_token(id, "prompt", limits.vocab_size);
  if (prompt_tokens >= limits.max_model_len) {
    fail_param(ErrorKind::kContextLengthExceeded, "prompt",
               "the prompt has {} tokens; with at least one of output the limit is {} (--max-model-len)", prompt_tokens,
               limits.max_model_len);
  }

  const int64_t pool_tokens = limits.num_pages * limits.page_size;
  const int64_t rest = limits.max_model_len - prompt_tokens;
  int64_t max_tokens = 0;
  if (sampling.max_tokens && *sampling.max_tokens != kRestOfContext) {
    max_tokens = std::min(*sampling.max_tokens, rest);
    if (max_tokens < *sampling.max_tokens && choice == 0) {
      spdlog::warn("max_tokens {} cut to {}: the prompt has {} tokens and the limit is {}", *sampling.max_tokens, max_tokens, prompt_tokens,
                   limits.max_model_len);
    }
  } else {
    const int64_t wanted = sampling.max_tokens.value_or(kDefaultMaxTokens);
    max_tokens = std::min({wanted, rest, std::max<int64_t>(pool_tokens - prompt_tokens, 1)});
  }
  if (prompt_tokens + max_tokens > pool_tokens) {
    fail_param(ErrorKind::kContextLengthExceeded, "max_tokens",
               "{} prompt tokens and {} of output can never fit: the KV pool holds {} tokens ({} pages of {}; --num-pages)", prompt_tokens,
               max_tokens, pool_tokens, limits.num_pages, limits.page_size);
  }
  if (sampling.min_tokens > max_tokens) {
    fail_param(ErrorKind::kInvalidRequest, "min_tokens", "min_tokens is {}, more than max_tokens ({})", sampling.min_tokens, max_tokens);
  }

  auto request = std::make_shared<Request>();
  request->sampling = resolve_sampling(sampling, limits);
  request->sampling.seed = seed;
  request->sampling.choice = choice;
  request->sampling.prompt_tokens = static_cast<int32_t>(prompt_tokens);
  request->sampling.min_tokens = static_cast<int32_t>(sampling.min_tokens);
  request->prompt_token_ids = std::move(prompt_token_ids);
  request->max_tokens = max_tokens;
  if (!sampling.ignore_eos) request->eos_token_ids = limits.eos_token_ids;
  request->stop_token_ids = sampling.stop_token_ids;
  if (sampling.min_tokens > 0) {
    std::vector<int32_t>& banned = request->sampling.banned_before_min;
    banned = request->eos_token_ids;
    banned.insert(banned.end(), sampling.stop_token_ids.begin(), sampling.stop_token_ids.end());
  }
  request->stop = sampling.stop;
  request->prompt_logprobs = sampling.prompt_logprobs;
  request->tokenizer = limits.tokenizer;
  return request;
}

std::string describe_generation_defaults(const GenerationDefaults& generation) {
  if (!generation.do_sample) return {};
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  add("temperature", generation.temperature);
  add("top_k", generation.top_k);
  add("top_p", generation.top_p);
  add("min_p", generation.min_p);
  add("repetition_penalty", generation.repetition_penalty);
  return text;
}

}  // namespace minisgl
