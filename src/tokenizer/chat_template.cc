#include "tokenizer/chat_template.h"

#include "base/error.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/jinja_text.h"

namespace minisgl {

namespace {

using Json = nlohmann::ordered_json;

jinja::Value convert_text(jinja::Heap& heap, const std::string& text) {
  if (!jinja::text::is_valid_utf8(text)) jinja::refuse("a text in the conversation is not valid UTF-8");
  return heap.string(text);
}

jinja::Value convert(jinja::Heap& heap, const Json& json, int depth = 0) {
  if (depth > jinja::kMaxValueDepth) jinja::refuse("the conversation is nested deeper than {} levels", jinja::kMaxValueDepth);
  switch (json.type()) {
    case Json::value_t::null:
      return jinja::Value();
    case Json::value_t::boolean:
      return jinja::Value(json.get<bool>());
    case Json::value_t::number_integer:
      return jinja::Value(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) jinja::refuse("the integer {} is out of range", json.get<uint64_t>());
      return jinja::Value(json.get<int64_t>());
    case Json::value_t::number_float:
      return jinja::Value(json.get<double>());
    case Json::value_t::string:
      return convert_text(heap, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(convert(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<jinja::Value, jinja::Value>> entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) entries.emplace_back(convert_text(heap, key), convert(heap, value, depth + 1));
      return jinja::make_dict(heap, std::move(entries));
    }
    default:
      jinja::refuse("binary values are not supported");
  }
}

std::tm local_time() {
  std::time_t clock = std::time(nullptr);
  std::tm now{};
  localtime_r(&clock, &now);
  return now;
}

/// Sets what the template mentions of the inputs.
void set_inputs(jinja::Interpreter* interpreter, jinja::Heap& heap, const ChatInputs& inputs) {
  auto set = [&](const std::string& name, const Json& value) {
    if (interpreter->uses(name)) interpreter->set(name, convert(heap, value));
  };
  set("messages", inputs.messages);
  set("tools", inputs.tools);
  set("documents", nullptr);
  set("add_generation_prompt", inputs.add_generation_prompt);
  set("bos_token", inputs.bos_token);
  set("eos_token", inputs.eos_token);
  if (inputs.extra.is_null()) return;
  if (!inputs.extra.is_object()) fail_param(ErrorKind::kInvalidRequest, "chat_template_kwargs", "chat_template_kwargs must be an object");
  for (const auto& [name, value] : inputs.extra.items()) set(name, value);
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, ChatLimits limits) : program_(jinja::parse(std::move(source))), limits_(limits) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

const std::string& ChatTemplate::source() const {
  return program_->source;
}

std::string ChatTemplate::render(const ChatInputs& inputs) const {
  jinja::Heap heap(limits_.max_steps, limits_.max_output_bytes, limits_.max_memory_bytes);
  int line = 0;
  try {
    jinja::Interpreter interpreter(*program_, heap, inputs.now ? *inputs.now : local_time());
    try {
      set_inputs(&interpreter, heap, inputs);
      return interpreter.run();
    } catch (const jinja::RenderError&) {
      line = interpreter.line();
      throw;
    }
  } catch (const jinja::RaisedException& error) {
    fail(ErrorKind::kInvalidRequest, "the chat template refuses the conversation: {}", error.what());
  } catch (const jinja::RenderError& error) {
    fail(ErrorKind::kInvalidRequest, "chat template, line {}: {}", line, error.what());
  }
}

}  // namespace minisgl
