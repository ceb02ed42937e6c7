#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace minisgl {

/// A log-probability of the raw logits (before penalties and temperature), natural logarithm; minus infinity for probability 0 (JSON output
/// prints -9999.0).
struct TokenLogprob {
  int32_t token_id = 0;
  double logprob = 0;
  /// The most likely tokens, most likely first, as (id, log-probability).
  std::vector<std::pair<int32_t, double>> top;
};

enum class FinishReason { kStop, kLength, kAbort, kError };
/// "stop", "length", "abort" or "error".
const char* finish_reason_name(FinishReason reason);

/// Why a request has no result.
struct Failure {
  std::string type;     ///< the kind's name
  std::string message;  ///< one line
  std::string param;    ///< the field at fault; may be empty
};

/// One choice of one request.
struct GenerateResult {
  int64_t index = 0;  ///< position of the request in the call
  int choice = 0;     ///< 0 .. n - 1
  std::vector<int32_t> prompt_token_ids;
  std::vector<int32_t> token_ids;  ///< what was generated, a final stop token included
  std::string text;                ///< without the final stop token, special tokens and stop string
  FinishReason finish_reason = FinishReason::kError;
  /// The stop string (text) or stop token (id) that ended the output; neither for the end-of-sequence set or length.
  std::variant<std::monostate, std::string, int32_t> matched_stop;
  uint64_t seed = 0;
  int64_t cached_tokens = 0;
  int64_t queue_us = 0;
  int64_t prefill_us = 0;
  int64_t decode_us = 0;
  std::vector<TokenLogprob> logprobs;                        ///< per output token, if asked for
  std::vector<std::optional<TokenLogprob>> prompt_logprobs;  ///< per prompt token, the first empty, if asked for
  using Failure = minisgl::Failure;
  /// Set if finish_reason is kError.
  std::optional<Failure> error;
};

}  // namespace minisgl
