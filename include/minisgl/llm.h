#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "minisgl/config.h"
#include "minisgl/sampling_params.h"

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

/// A prompt: text (special tokens added as the tokenizer says), token ids as they are, or chat messages as a JSON array
/// [{"role":...,"content":...}, ...] that the model's template renders (encoded without adding special tokens).
struct TextPrompt {
  std::string text;
};
struct TokenPrompt {
  std::vector<int32_t> token_ids;
};
struct ChatPrompt {
  std::string messages_json;
  /// JSON array of tool definitions for the template; empty: none.
  std::string tools_json;
  /// JSON object of further template variables; empty: none.
  std::string template_kwargs_json;
};
using Prompt = std::variant<TextPrompt, TokenPrompt, ChatPrompt>;

struct GenerateRequest {
  Prompt prompt;
  SamplingParams sampling;
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
  /// Set if finish_reason is kError: the kind's name, one line, and the field at fault (may be empty).
  struct Failure {
    std::string type;
    std::string message;
    std::string param;
  };
  std::optional<Failure> error;
};

/// New output of a running choice: whole characters only, the text after a stop string never.
struct StreamEvent {
  int64_t index = 0;
  int choice = 0;
  std::string_view text;
  std::span<const int32_t> token_ids;
  /// Set with the last event of a choice.
  const GenerateResult* finished = nullptr;
};

/// Offline generation: loads a model once, then answers any number of calls. Several instances may live in one process.
/// Not thread safe: one call at a time per instance, except abort().
class LLM {
 public:
  /// Loads the model. Throws minisgl::Error with one line that says what is wrong and what to change.
  explicit LLM(EngineConfig config);
  ~LLM();
  LLM(const LLM&) = delete;
  LLM& operator=(const LLM&) = delete;

  /// Runs all requests and returns their choices ordered by (index, choice). A bad request gives a result with an error; the others
  /// run. `on_event`, if given, is called from this thread as output appears; what it throws is rethrown once all requests have ended.
  /// Any other exception is a fault of the engine: after it every call throws Error(kUnavailable).
  std::vector<GenerateResult> generate(std::span<const GenerateRequest> requests,
                                       const std::function<void(const StreamEvent&)>& on_event = {});

  /// Ends everything that runs or waits as soon as the current step is done; results so far carry kAbort. Safe from any thread and from
  /// a signal handler.
  void abort() noexcept;

  struct Impl;
  /// For the project's own tools (tokenizer, template, memory plan): see llm/llm_impl.h.
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace minisgl
