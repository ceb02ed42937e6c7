#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "cli/chat_messages.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "llm/request_json.h"

namespace minisgl::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHelp =
    "/reset          forget the conversation\n"
    "/system TEXT    set the system message and forget the conversation\n"
    "/set NAME VALUE change a sampling field (temperature, top_p, max_tokens, ...)\n"
    "/exit           leave (or Ctrl-D); Ctrl-C stops an answer\n";

/// One conversation: the messages so far and the sampling fields in force.
class ChatSession {
 public:
  ChatSession(LLM& llm, InterruptGuard& interrupt, SamplingParams sampling, std::string system)
      : llm_(llm), interrupt_(interrupt), sampling_(std::move(sampling)), system_(std::move(system)) {}

  /// Handles a line that begins with '/'. Returns false if the session ends.
  bool command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/reset") {
      turns_.clear();
    } else if (name == "/system") {
      system_ = rest;
      turns_.clear();
    } else if (name == "/set") {
      set(rest);
    } else {
      std::cerr << kHelp;
    }
    return true;
  }

  /// Answers `text`, streaming to stdout, and remembers both. On failure the text is forgotten.
  void ask(const std::string& text) {
    turns_.push_back({text, std::nullopt});
    while (true) {
      interrupt_.reset();
      GenerateRequest request;
      try {
        request = {ChatPrompt{chat_messages(system_, turns_), "", ""}, sampling_};
      } catch (const Error& error) {
        spdlog::error("{}", one_line(error.what()));
        turns_.pop_back();
        return;
      }
      const std::vector<GenerateResult> results = llm_.generate(std::span(&request, 1), [](const StreamEvent& event) {
        write_stdout(event.text);
        flush_stdout();
      });
      const GenerateResult& result = results.front();
      if (!result.error.has_value()) {
        write_stdout("\n");
        flush_stdout();
        turns_.back().answer = result.text;
        return;
      }
      const bool too_long = result.error->type == error_kind_name(ErrorKind::kContextLengthExceeded);
      if (too_long && turns_.size() > 1) {
        spdlog::warn("the conversation is longer than the model's context: the oldest turn is dropped");
        turns_.erase(turns_.begin());
        continue;
      }
      spdlog::error("{}", one_line(result.error->message));
      turns_.pop_back();
      return;
    }
  }

 private:
  void set(const std::string& assignment) {
    const size_t space = assignment.find(' ');
    const std::string field = assignment.substr(0, space);
    const std::string text = space == std::string::npos ? "" : assignment.substr(space + 1);
    if (field == "n" || field == "logprobs" || field == "prompt_logprobs") {
      std::cerr << "'" << field << "' has no place in a chat\n";
      return;
    }
    try {
      // A value is JSON; what is not JSON is a string, so that /set stop END works without quotes.
      Json value = Json::accept(text) ? parse_ordered_json(text, "the value") : Json(text);
      if (!set_sampling_field(sampling_, field, value)) std::cerr << "there is no sampling field '" << field << "'\n";
    } catch (const Error& error) {
      std::cerr << error.what() << "\n";
    }
  }

  LLM& llm_;
  InterruptGuard& interrupt_;
  SamplingParams sampling_;
  std::string system_;
  std::vector<ChatTurn> turns_;
};

}  // namespace

int run_chat(const Flags& flags) {
  SamplingParams sampling = sampling_params(flags);
  // An answer may take the rest of the context.
  if (!sampling.max_tokens.has_value()) sampling.max_tokens = kRestOfContext;
  LLM llm(engine_config(flags));
  InterruptGuard interrupt(llm);
  ChatSession session(llm, interrupt, std::move(sampling), flags.get_string("system", ""));

  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) std::cerr << kHelp;
  std::string line;
  while (true) {
    if (terminal) std::cerr << "> " << std::flush;
    errno = 0;
    if (!std::getline(std::cin, line)) {
      if (interrupt.terminated()) return kExitInterrupted;
      if (interrupt.interrupted() && !std::cin.bad() && errno == EINTR) {
        interrupt.reset();
        std::clearerr(stdin);
        std::cin.clear();
        std::cerr << "\n";
        continue;
      }
      break;
    }
    if (line.empty()) continue;
    if (line.front() == '/') {
      if (!session.command(line)) break;
      continue;
    }
    session.ask(line);
    if (interrupt.terminated()) return kExitInterrupted;
  }
  return 0;
}

}  // namespace minisgl::cli
