#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/step_plan.h"
#include "kvcache/prefix_cache.h"
#include "minisgl/result.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// What a request has given so far, and how it ended.
struct RequestResult {
  std::vector<int32_t> token_ids;  ///< a final stop token included
  std::string text;                ///< without final stop token, special tokens and stop string
  FinishReason finish_reason = FinishReason::kError;
  std::variant<std::monostate, std::string, int32_t> matched_stop;
  std::vector<TokenLogprob> logprobs;
  std::vector<std::optional<TokenLogprob>> prompt_logprobs;
  std::optional<GenerateResult::Failure> error;
  int64_t cached_tokens = 0;  ///< prompt tokens that were in the prefix cache when the request was first admitted
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t decode_us = 0;
};

/// One choice to generate. Validated before it reaches the scheduler (see validation.h), which never throws for what is in here.
struct Request {
  // Fixed before submission.
  uint64_t id = 0;  ///< the owner's name for it; the scheduler does not look at it
  std::vector<int32_t> prompt_token_ids;
  RowSampling sampling;
  int64_t max_tokens = 0;
  std::vector<int32_t> eos_token_ids;  ///< sorted; empty with ignore_eos
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;
  int prompt_logprobs = -1;
  std::optional<Tokenizer> tokenizer;  ///< nothing: no text
  /// Higher goes first, and is preempted last; equal ones by arrival. A steady stream of higher ones keeps lower ones waiting.
  int priority = 0;
  CacheNamespace cache_namespace = 0;  ///< what is not equal is never shared
  /// The request ends with an error (timeout) at the first step built after this moment.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  /// Restricts the next token given the output so far: sets bit i of `mask` ([ceil(vocab / 32)], all zero before) for each token i that is
  /// allowed. Called by the scheduler's thread once the previous token is known (late sampling). Must not throw.
  std::function<void(std::span<const int32_t> output_token_ids, std::span<uint32_t> mask)> token_mask;

  /// Set by any thread: the request ends with kAbort before the next step is built.
  std::atomic<bool> abort{false};

  /// The scheduler's until the request has finished.
  RequestResult result;
};

/// News of a request, valid during the call: what this step added.
struct RequestOutput {
  const Request& request;
  std::span<const int32_t> token_ids;
  std::string_view text;  ///< whole characters
  bool finished = false;  ///< the last output of this request: its result is complete
};

}  // namespace minisgl
