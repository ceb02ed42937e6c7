#include "llm/tokenizer_bundle.h"

#include <time.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_path.h"
#include "tokenizer/gguf_vocabulary.h"

namespace minisgl {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// Of tokenizer_config.json and of a template.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

ordered_json read_json_file(const fs::path& path) {
  return parse_ordered_json(read_text_file(path, kMaxTextBytes), path.string(), ErrorKind::kBadModel);
}

/// A token's text in tokenizer_config.json: a string, or an object with "content"; empty if absent or null.
std::string token_text(const ordered_json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) return (*it)["content"].get<std::string>();
  return {};
}

/// "chat_template" of tokenizer_config.json: a string, or a list of {"name", "template"} of which "default" (else the first) is meant.
std::optional<std::string> config_template(const ordered_json& config) {
  const auto it = config.find("chat_template");
  if (it == config.end()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  std::optional<std::string> chosen;
  if (it->is_array()) {
    for (const ordered_json& entry : *it) {
      if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string()) continue;
      const auto name = entry.find("name");
      const bool is_default = name != entry.end() && *name == "default";
      if (!chosen || is_default) chosen = entry["template"].get<std::string>();
      if (is_default) break;
    }
  }
  return chosen;
}

std::vector<int32_t> to_int32(const std::vector<int64_t>& values) {
  // Token types are small; one that is not becomes 0, which is no type.
  std::vector<int32_t> out;
  for (const int64_t value : values) out.push_back(value >= 0 && value < 256 ? static_cast<int32_t>(value) : 0);
  return out;
}

std::optional<int32_t> token_id(const GgufFile& file, const char* key, size_t tokens) {
  const auto value = file.integer(key);
  if (!value) return std::nullopt;
  if (*value < 0 || static_cast<uint64_t>(*value) >= tokens) {
    fail(ErrorKind::kBadModel, "{}: {} is {}, but there are {} tokens", file.path().string(), key, *value, tokens);
  }
  return static_cast<int32_t>(*value);
}

GgufVocabulary read_vocabulary(const GgufFile& file) {
  GgufVocabulary vocabulary;
  vocabulary.model = file.string("tokenizer.ggml.model").value_or("");
  vocabulary.pre = file.string("tokenizer.ggml.pre").value_or("default");
  vocabulary.tokens = file.strings("tokenizer.ggml.tokens").value_or(std::vector<std::string>());
  if (vocabulary.tokens.empty()) fail(ErrorKind::kBadModel, "{} has no tokenizer: tokenizer.ggml.tokens is missing", file.path().string());
  vocabulary.token_types = to_int32(file.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>()));
  vocabulary.scores = file.floats("tokenizer.ggml.scores").value_or(std::vector<float>());
  vocabulary.merges = file.strings("tokenizer.ggml.merges").value_or(std::vector<std::string>());
  vocabulary.add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(false);
  vocabulary.add_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  vocabulary.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(false);
  vocabulary.bos_id = token_id(file, "tokenizer.ggml.bos_token_id", vocabulary.tokens.size());
  vocabulary.eos_id = token_id(file, "tokenizer.ggml.eos_token_id", vocabulary.tokens.size());
  vocabulary.unk_id = token_id(file, "tokenizer.ggml.unknown_token_id", vocabulary.tokens.size());
  return vocabulary;
}

std::tm parse_time(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') {
    fail_param(ErrorKind::kUsage, "now", "--now is '{}'; expected a time like 2026-01-15T12:00:00", text);
  }
  timegm(&time);  // fills in the days of the week and year
  return time;
}

/// A template that the user named must work; one that came with the model is missed only when a conversation needs it.
void set_template(TokenizerBundle& bundle, std::string source, const std::string& origin, bool required) {
  try {
    bundle.chat_template.emplace(std::move(source));
  } catch (const Error& error) {
    if (required) throw Error(error.kind(), fmt::format("{}: {}", origin, error.what()), error.param());
    bundle.chat_template_problem = fmt::format("the chat template of {} cannot be used: {}", origin, error.what());
  }
}

/// Tokens and template of a folder in Hugging Face layout.
void load_folder_extras(TokenizerBundle& bundle, const fs::path& folder) {
  ordered_json config = ordered_json::object();
  if (const fs::path path = folder / "tokenizer_config.json"; fs::exists(path)) {
    config = read_json_file(path);
    if (!config.is_object()) fail(ErrorKind::kBadModel, "{} is not a JSON object", path.string());
  }
  bundle.bos_token = token_text(config, "bos_token");
  bundle.eos_token = token_text(config, "eos_token");
  if (bundle.tokenizer && !bundle.eos_token.empty()) bundle.eos_token_id = bundle.tokenizer->token_to_id(bundle.eos_token);

  bundle.chat_template_problem = fmt::format("{} has no chat template; --chat-template FILE gives one", folder.string());
  if (const fs::path path = folder / "chat_template.jinja"; fs::exists(path)) {
    set_template(bundle, read_text_file(path, kMaxTextBytes), path.string(), false);
  } else if (auto source = config_template(config)) {
    set_template(bundle, std::move(*source), (folder / "tokenizer_config.json").string(), false);
  }
}

void load_gguf(TokenizerBundle& bundle, const fs::path& path, bool with_tokenizer) {
  const GgufFile file(path);
  bundle.chat_template_problem = fmt::format("{} has no chat template; --chat-template FILE gives one", path.string());
  if (auto source = file.string("tokenizer.chat_template")) set_template(bundle, std::move(*source), path.string(), false);
  if (!with_tokenizer) return;
  const GgufVocabulary vocabulary = read_vocabulary(file);
  bundle.tokenizer = Tokenizer::from_gguf(vocabulary);
  if (vocabulary.bos_id) bundle.bos_token = vocabulary.tokens[static_cast<size_t>(*vocabulary.bos_id)];
  if (vocabulary.eos_id) bundle.eos_token = vocabulary.tokens[static_cast<size_t>(*vocabulary.eos_id)];
  bundle.eos_token_id = vocabulary.eos_id;
}

fs::path find_tokenizer_json(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / "tokenizer.json" : path;
  if (!fs::exists(file)) {
    fail_param(ErrorKind::kNotFound, "tokenizer", "there is no {}; --tokenizer names another folder or tokenizer.json, or none",
               file.string());
  }
  return file;
}

ordered_json parse_field(const std::string& text, const char* field, bool (ordered_json::*is_type)() const noexcept, const char* type) {
  ordered_json value;
  try {
    value = parse_ordered_json(text, field);
  } catch (const Error& error) {
    throw Error(error.kind(), error.what(), field);
  }
  if (!(value.*is_type)()) fail_param(ErrorKind::kInvalidRequest, field, "{} is not {}", field, type);
  return value;
}

}  // namespace

TokenizerBundle load_tokenizer_bundle(const EngineConfig& config) {
  TokenizerBundle bundle;
  const ModelPath model = resolve_model_path(config.model, config.revision);
  const bool own_tokenizer = config.tokenizer.empty() && model.format != ModelFormat::kShape;
  if (!config.tokenizer.empty() && config.tokenizer != "none") {
    if (GgufFile::has_magic(config.tokenizer)) {
      load_gguf(bundle, config.tokenizer, true);
    } else {
      const fs::path file = find_tokenizer_json(config.tokenizer);
      bundle.tokenizer = Tokenizer::load_tokenizer_json(file);
      load_folder_extras(bundle, file.parent_path());
    }
  }
  switch (model.format) {
    case ModelFormat::kHuggingFaceFolder:
      if (own_tokenizer) bundle.tokenizer = Tokenizer::load_tokenizer_json(find_tokenizer_json(model.path));
      if (own_tokenizer || config.tokenizer == "none" || !bundle.chat_template) load_folder_extras(bundle, model.path);
      break;
    case ModelFormat::kGguf:
      if (own_tokenizer || config.tokenizer == "none") load_gguf(bundle, model.path, own_tokenizer);
      break;
    case ModelFormat::kShape:
      if (!bundle.tokenizer) bundle.chat_template_problem = "a shape has no tokenizer and no chat template";
      break;
  }
  if (!config.chat_template.empty()) {
    bundle.chat_template_problem.clear();
    set_template(bundle, read_text_file(config.chat_template, kMaxTextBytes), config.chat_template, true);
  }
  if (config.bos_token) bundle.bos_token = *config.bos_token;
  if (config.eos_token) bundle.eos_token = *config.eos_token;
  if (!config.now.empty()) bundle.now = parse_time(config.now);
  return bundle;
}

const Tokenizer& TokenizerBundle::require_tokenizer() const {
  if (!tokenizer) {
    fail_param(ErrorKind::kInvalidRequest, "prompt", "this engine runs without a tokenizer: prompts must be token ids (prompt_token_ids)");
  }
  return *tokenizer;
}

const ChatTemplate& TokenizerBundle::require_chat_template() const {
  if (!chat_template) fail_param(ErrorKind::kNotSupported, "messages", "{}", chat_template_problem);
  return *chat_template;
}

std::string TokenizerBundle::render(const ChatPrompt& prompt, bool add_generation_prompt) const {
  ChatInputs inputs;
  inputs.messages = parse_field(prompt.messages_json, "messages", &ordered_json::is_array, "a JSON array");
  if (inputs.messages.empty()) fail_param(ErrorKind::kInvalidRequest, "messages", "messages is empty");
  for (const ordered_json& message : inputs.messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      fail_param(ErrorKind::kInvalidRequest, "messages",
                 "messages has an entry without a role: each is an object with \"role\" and \"content\"");
    }
  }
  if (!prompt.tools_json.empty()) inputs.tools = parse_field(prompt.tools_json, "tools", &ordered_json::is_array, "a JSON array");
  if (!prompt.template_kwargs_json.empty()) {
    inputs.extra = parse_field(prompt.template_kwargs_json, "chat_template_kwargs", &ordered_json::is_object, "a JSON object");
  }
  inputs.add_generation_prompt = add_generation_prompt;
  inputs.bos_token = bos_token;
  inputs.eos_token = eos_token;
  inputs.now = now;
  return require_chat_template().render(inputs);
}

std::vector<int32_t> TokenizerBundle::encode(const Prompt& prompt) const {
  if (const auto* ids = std::get_if<TokenPrompt>(&prompt)) return ids->token_ids;
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) return require_tokenizer().encode(text->text);
  // The template writes BOS and the turn markers itself.
  const Tokenizer& encoder = require_tokenizer();
  return encoder.encode(render(std::get<ChatPrompt>(prompt)), {.add_special_tokens = false});
}

}  // namespace minisgl
