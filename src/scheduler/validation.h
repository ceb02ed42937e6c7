#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "minisgl/sampling_params.h"
#include "scheduler/request.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// What a running engine can take and how it fills in what a request leaves open.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  ///< L: prompt plus output, tokens
  int64_t page_size = 0;
  int64_t num_pages = 0;
  std::vector<int32_t> eos_token_ids;  ///< sorted
  GenerationDefaults generation;       ///< apply with do_sample only
  std::optional<Tokenizer> tokenizer;
};

/// Output length of requests that do not say, before it is cut to the rest of L.
inline constexpr int64_t kDefaultMaxTokens = 1024;

/// Checks every field of `sampling` against its documented range. Throws Error(kInvalidRequest) that names field, value and range.
void check_sampling_params(const SamplingParams& sampling, const RequestLimits& limits);

/// A request that the scheduler can take, for choice `choice` (its seed is `seed`; all choices of a prompt share it). Checks prompt and
/// sampling. prompt + max_tokens > L is cut to L with a log line. Throws Error: kInvalidRequest (a field), kContextLengthExceeded (a
/// prompt of L tokens or more, or a request that can never fit into the KV pool).
std::shared_ptr<Request> make_request(std::vector<int32_t> prompt_token_ids, const SamplingParams& sampling, uint64_t seed, int choice,
                                      const RequestLimits& limits);

/// What the model's generation_config.json changes of the defaults: "temperature 0.6, top_k 20", or empty.
std::string describe_generation_defaults(const GenerationDefaults& generation);

}  // namespace minisgl
