#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/json_lines.h"
#include "cli/output.h"
#include "llm/tokenizer_bundle.h"

namespace minisgl::cli {

namespace {

using Json = nlohmann::ordered_json;

void print_tokens(const std::vector<int32_t>& ids, const std::string& text) {
  const Json line = {{"token_ids", ids}, {"text", text}};
  write_stdout(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_error(const std::string& message) {
  const Json line = {{"error", message}};
  write_stdout(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

/// The fields of a line of --messages-file.
struct MessagesLine {
  ChatPrompt prompt;
  bool add_generation_prompt = true;
};

MessagesLine parse_messages_line(const Json& object) {
  MessagesLine line;
  if (!object.is_object() || !object.contains("messages")) {
    fail_param(ErrorKind::kInvalidRequest, "messages", "it must be an object with 'messages'");
  }
  for (const auto& [field, value] : object.items()) {
    if (field == "messages") {
      line.prompt.messages_json = value.dump();
    } else if (field == "tools") {
      if (!value.is_null()) line.prompt.tools_json = value.dump();
    } else if (field == "chat_template_kwargs") {
      if (!value.is_null()) line.prompt.template_kwargs_json = value.dump();
    } else if (field == "add_generation_prompt") {
      if (!value.is_boolean()) fail_param(ErrorKind::kInvalidRequest, field, "'{}' is {}; it must be true or false", field, value.dump());
      line.add_generation_prompt = value.get<bool>();
    } else {
      fail_param(ErrorKind::kInvalidRequest, field,
                 "unknown field '{}'; known are messages, tools, add_generation_prompt, chat_template_kwargs", field);
    }
  }
  return line;
}

}  // namespace

int run_tokenize(const Flags& flags) {
  const TokenizerBundle bundle = load_tokenizer_bundle(engine_config(flags));
  const Tokenizer& tokenizer = bundle.require_tokenizer();
  const EncodeOptions options{.add_special_tokens = !flags.get_bool("no-special-tokens"), .parse_special = !flags.get_bool("plain-text")};
  const auto text = flags.get_string("text");
  const auto file = flags.get_string("file");
  const auto messages_file = flags.get_string("messages-file");
  if (text.has_value() + file.has_value() + messages_file.has_value() != 1) {
    fail_param(ErrorKind::kUsage, "text", "give one of --text T, --file F.jsonl, --messages-file F.jsonl");
  }

  int status = 0;
  const auto on_failure = [&](int64_t, const GenerateResult::Failure& failure) {
    print_error(failure.message);
    status = 1;
  };
  if (text.has_value()) {
    print_tokens(tokenizer.encode(*text, options), *text);
  } else if (file.has_value()) {
    read_json_lines(
        *file, "file",
        [&](int64_t, const Json& object) {
          if (!object.is_object() || object.size() != 1 || !object.contains("text") || !object["text"].is_string()) {
            fail_param(ErrorKind::kInvalidRequest, "text", "it must be {{\"text\": \"...\"}}");
          }
          const auto line = object["text"].get<std::string>();
          print_tokens(tokenizer.encode(line, options), line);
        },
        on_failure);
  } else {
    // What a template rendered has its special tokens already.
    const EncodeOptions rendered_options{.add_special_tokens = false, .parse_special = options.parse_special};
    read_json_lines(
        *messages_file, "messages-file",
        [&](int64_t, const Json& object) {
          const MessagesLine line = parse_messages_line(object);
          const std::string rendered = bundle.render(line.prompt, line.add_generation_prompt);
          print_tokens(tokenizer.encode(rendered, rendered_options), rendered);
        },
        on_failure);
  }
  return status;
}

}  // namespace minisgl::cli
