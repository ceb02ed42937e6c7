#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace minisgl {

/// A max_tokens that asks for all that the context leaves.
inline constexpr int64_t kRestOfContext = std::numeric_limits<int64_t>::max();

/// How one request is sampled and when it ends. A field left empty takes the model's default (generation_config.json, only with
/// `do_sample: true`), then the value named here.
///
/// Order of work on a row of logits: logit bias, min_tokens, repetition penalty (prompt and output), frequency and presence penalty
/// (output only), temperature, top-k, top-p, min-p, draw. A tie at a cut keeps the lower id.
struct SamplingParams {
  /// Longest output in tokens, >= 1; more than the context leaves is cut with a log line, kRestOfContext without. Empty: 1,024 or the rest
  /// of the context.
  std::optional<int64_t> max_tokens;
  /// >= 0 and finite; 0 is greedy: the true argmax, lowest id on ties. Default 0 (offline).
  std::optional<double> temperature;
  /// Keep the k most likely tokens; -1 or 0: all. Default -1.
  std::optional<int64_t> top_k;
  /// Keep the most likely tokens whose preceding mass is below top_p; in (0, 1]. Default 1.
  std::optional<double> top_p;
  /// Drop tokens below min_p times the most likely one; in [0, 1]. Default 0.
  std::optional<double> min_p;
  /// Key of the counter-based generator. Empty: one is drawn and reported.
  std::optional<uint64_t> seed;
  /// Number of choices generated from one prompt, 1 to 128.
  int n = 1;

  /// Text that ends the output; not part of it. Matched on the bytes of generated text, across token borders.
  std::vector<std::string> stop;
  /// Tokens that end the output besides the model's end-of-sequence set.
  std::vector<int32_t> stop_token_ids;
  /// Do not end at the model's end-of-sequence tokens (stop and stop_token_ids still hold).
  bool ignore_eos = false;
  /// Before this many tokens neither end-of-sequence tokens nor stop_token_ids can be sampled, and stop strings are not matched.
  int64_t min_tokens = 0;

  /// Subtracted once for a token that is in the output; in [-2, 2].
  double presence_penalty = 0;
  /// Subtracted for each occurrence in the output; in [-2, 2].
  double frequency_penalty = 0;
  /// > 0. Positive logits of tokens seen in prompt or output are divided by it, negative ones multiplied. Empty: the model's, then 1.
  std::optional<double> repetition_penalty;
  /// Added to the logits; value in [-100, 100].
  std::vector<std::pair<int32_t, double>> logit_bias;

  /// Report the log-probability of each output token and of this many most likely ones (0 to 20); -1: none. Of the raw logits.
  int logprobs = -1;
  /// The same for each prompt token.
  int prompt_logprobs = -1;
};

}  // namespace minisgl
