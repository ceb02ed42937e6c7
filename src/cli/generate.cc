#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/chat_messages.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_lines.h"
#include "cli/output.h"
#include "llm/llm_impl.h"
#include "llm/request_json.h"

namespace minisgl::cli {

namespace {

using Json = nlohmann::ordered_json;

/// A prompt as the user gave it: a request to run, or the reason why it cannot be.
struct Input {
  std::optional<GenerateRequest> request;
  std::optional<GenerateResult::Failure> failure;
  int64_t line = 0;  ///< of --prompts-file, from 1; 0 for a flag
};

std::string read_stdin() {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  std::string text;
  char block[1 << 16];
  while (std::cin.read(block, sizeof(block)), std::cin.gcount() > 0) {
    text.append(block, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > kMaxBytes) fail_param(ErrorKind::kInvalidRequest, "prompt", "the prompt on stdin is longer than {} bytes", kMaxBytes);
  }
  if (std::ferror(stdin) != 0 || std::cin.bad()) {
    fail_param(ErrorKind::kIo, "prompt", "the prompt cannot be read from stdin: {}", std::strerror(errno));
  }
  return text;
}

Prompt text_or_chat(const Flags& flags, std::string text) {
  if (!flags.get_bool("chat")) return TextPrompt{std::move(text)};
  const ChatTurn turn{std::move(text), std::nullopt};
  return ChatPrompt{chat_messages("", {&turn, 1}), "", ""};
}

std::vector<Input> read_inputs(const Flags& flags, const SamplingParams& sampling) {
  std::vector<Input> inputs;
  for (std::string text : flags.get_list("prompt")) {
    if (text == "-") text = read_stdin();
    inputs.push_back({GenerateRequest{text_or_chat(flags, std::move(text)), sampling}, {}, 0});
  }
  for (const std::string& ids : flags.get_list("prompt-ids")) {
    inputs.push_back({GenerateRequest{TokenPrompt{parse_token_ids(ids, "--prompt-ids")}, sampling}, {}, 0});
  }
  if (const auto path = flags.get_string("prompts-file")) {
    read_json_lines(
        *path, "prompts-file",
        [&](int64_t line, const Json& object) {
          inputs.push_back({parse_request_json(object, sampling), std::nullopt, line});
        },
        [&](int64_t line, const GenerateResult::Failure& failure) {
          inputs.push_back({std::nullopt, failure, line});
        });
  }
  if (inputs.empty()) {
    fail_param(ErrorKind::kUsage, "prompt", "no prompt: give --prompt TEXT, --prompt-ids 1,2,3 or --prompts-file F.jsonl");
  }
  return inputs;
}

void log_speed(const std::vector<GenerateResult>& results) {
  // Requests run side by side, so the time of all of them is that of the slowest.
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t prefill_us = 0;
  int64_t decode_us = 0;
  for (const GenerateResult& result : results) {
    if (result.error.has_value()) continue;
    prompt_tokens += result.choice == 0 ? static_cast<int64_t>(result.prompt_token_ids.size()) : 0;
    output_tokens += std::max<int64_t>(0, static_cast<int64_t>(result.token_ids.size()) - 1);
    prefill_us = std::max(prefill_us, result.queue_us + result.prefill_us);
    decode_us = std::max(decode_us, result.decode_us);
  }
  const auto rate = [](int64_t tokens, int64_t us) { return us > 0 ? static_cast<double>(tokens) * 1e6 / static_cast<double>(us) : 0.0; };
  if (prompt_tokens == 0) return;  // every request was refused
  spdlog::info("prompt {} tokens in {:.2f} s ({:.1f} tokens/s); output {} tokens after the first in {:.2f} s ({:.1f} tokens/s)",
               prompt_tokens, static_cast<double>(prefill_us) / 1e6, rate(prompt_tokens, prefill_us), output_tokens,
               static_cast<double>(decode_us) / 1e6, rate(output_tokens, decode_us));
}

}  // namespace

int run_generate(const Flags& flags) {
  EngineConfig config = engine_config(flags);
  const SamplingParams sampling = sampling_params(flags);
  const std::vector<Input> inputs = read_inputs(flags, sampling);
  const bool json = flags.get_bool("json");
  if (!json && (sampling.logprobs >= 0 || sampling.prompt_logprobs >= 0)) {
    fail_param(ErrorKind::kUsage, "json", "--logprobs and --prompt-logprobs are printed with --json only: add --json");
  }

  // The engine sees only the requests that parsed; `position` leads back to the user's order.
  std::vector<GenerateRequest> requests;
  std::vector<size_t> position;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].request.has_value()) continue;
    requests.push_back(*inputs[i].request);
    position.push_back(i);
  }

  LLM llm(std::move(config));
  InterruptGuard interrupt(llm);
  const bool has_text = llm.impl().tokenizer.tokenizer.has_value();  // without a tokenizer ids go in and out
  const bool streamed = !json && has_text && inputs.size() == 1 && sampling.n == 1;
  const auto on_event = [&](const StreamEvent& event) {
    if (!streamed) return;
    write_stdout(event.text);
    flush_stdout();
  };
  std::vector<GenerateResult> results = llm.generate(requests, on_event);
  for (GenerateResult& result : results) {
    const Input& input = inputs[position[static_cast<size_t>(result.index)]];
    if (result.error.has_value() && input.line > 0) result.error->message = fmt::format("line {}: {}", input.line, result.error->message);
    result.index = static_cast<int64_t>(position[static_cast<size_t>(result.index)]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].failure.has_value()) continue;
    GenerateResult failed;
    failed.index = static_cast<int64_t>(i);
    failed.error = inputs[i].failure;
    results.push_back(std::move(failed));
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.index < b.index; });

  bool failed = false;
  for (const GenerateResult& result : results) {
    failed |= result.error.has_value();
    if (json) {
      write_stdout(result_to_json(result).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (result.error.has_value()) {
      spdlog::error("{}{}", inputs.size() > 1 ? fmt::format("prompt {}: ", result.index + 1) : "", one_line(result.error->message));
    } else if (!has_text) {
      write_stdout(fmt::format("{}\n", fmt::join(result.token_ids, ",")));
    } else {
      write_stdout(streamed ? "\n" : result.text + "\n");
    }
  }
  flush_stdout();
  log_speed(results);
  if (interrupt.interrupted()) return kExitInterrupted;
  return failed ? 1 : 0;
}

}  // namespace minisgl::cli
