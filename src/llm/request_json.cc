#include "llm/request_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace minisgl {

namespace {

using Json = nlohmann::ordered_json;

/// A value for an error message, cut to a readable length.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

[[noreturn]] void fail_field(const std::string& field, const Json& value, const char* allowed) {
  fail_param(ErrorKind::kInvalidRequest, field, "'{}' is {}; it must be {}", field, shown(value), allowed);
}

int64_t to_int(const std::string& field, const Json& value, const char* allowed = "an integer") {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    fail_field(field, value, "an integer below 2^63");
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  // Some clients write whole numbers as 16.0.
  if (value.is_number_float() && std::nearbyint(value.get<double>()) == value.get<double>() && std::abs(value.get<double>()) < 0x1p53) {
    return static_cast<int64_t>(value.get<double>());
  }
  fail_field(field, value, allowed);
}

int to_small_int(const std::string& field, const Json& value) {
  const int64_t number = to_int(field, value);
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max())
    fail_field(field, value, "an integer below 2^31");
  return static_cast<int>(number);
}

double to_double(const std::string& field, const Json& value) {
  if (!value.is_number()) fail_field(field, value, "a number");
  return value.get<double>();
}

bool to_bool(const std::string& field, const Json& value) {
  if (!value.is_boolean()) fail_field(field, value, "true or false");
  return value.get<bool>();
}

std::vector<int32_t> to_ids(const std::string& field, const Json& value) {
  constexpr const char* kAllowed = "a list of token ids";
  if (!value.is_array()) fail_field(field, value, kAllowed);
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& element : value) {
    const int64_t id = to_int(field, element, kAllowed);
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) fail_field(field, element, "token ids between 0 and the vocabulary size");
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<std::string> to_strings(const std::string& field, const Json& value) {
  constexpr const char* kAllowed = "a string or a list of strings";
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) fail_field(field, value, kAllowed);
  std::vector<std::string> strings;
  for (const Json& element : value) {
    if (!element.is_string()) fail_field(field, element, kAllowed);
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

std::vector<std::pair<int32_t, double>> to_logit_bias(const std::string& field, const Json& value) {
  constexpr const char* kAllowed = "an object of token ids and numbers, such as {\"42\": -100}";
  if (!value.is_object()) fail_field(field, value, kAllowed);
  std::vector<std::pair<int32_t, double>> bias;
  for (const auto& [key, number] : value.items()) {
    int32_t id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc{} || parsed.ptr != key.data() + key.size() || !number.is_number()) fail_field(field, value, kAllowed);
    bias.emplace_back(id, number.get<double>());
  }
  return bias;
}

using Setter = void (*)(SamplingParams&, const std::string& field, const Json& value);

struct SamplingField {
  const char* name;
  Setter set;
};

constexpr std::array kSamplingFields = {
    SamplingField{"max_tokens", [](SamplingParams& p, const std::string& f, const Json& v) { p.max_tokens = to_int(f, v); }},
    SamplingField{"temperature", [](SamplingParams& p, const std::string& f, const Json& v) { p.temperature = to_double(f, v); }},
    SamplingField{"top_k", [](SamplingParams& p, const std::string& f, const Json& v) { p.top_k = to_int(f, v); }},
    SamplingField{"top_p", [](SamplingParams& p, const std::string& f, const Json& v) { p.top_p = to_double(f, v); }},
    SamplingField{"min_p", [](SamplingParams& p, const std::string& f, const Json& v) { p.min_p = to_double(f, v); }},
    SamplingField{"seed",
                  [](SamplingParams& p, const std::string& f, const Json& v) {
                    if (!v.is_number_unsigned()) fail_field(f, v, "an integer between 0 and 2^64 - 1");
                    p.seed = v.get<uint64_t>();
                  }},
    SamplingField{"n", [](SamplingParams& p, const std::string& f, const Json& v) { p.n = to_small_int(f, v); }},
    SamplingField{"stop", [](SamplingParams& p, const std::string& f, const Json& v) { p.stop = to_strings(f, v); }},
    SamplingField{"stop_token_ids", [](SamplingParams& p, const std::string& f, const Json& v) { p.stop_token_ids = to_ids(f, v); }},
    SamplingField{"ignore_eos", [](SamplingParams& p, const std::string& f, const Json& v) { p.ignore_eos = to_bool(f, v); }},
    SamplingField{"min_tokens", [](SamplingParams& p, const std::string& f, const Json& v) { p.min_tokens = to_int(f, v); }},
    SamplingField{"presence_penalty", [](SamplingParams& p, const std::string& f, const Json& v) { p.presence_penalty = to_double(f, v); }},
    SamplingField{"frequency_penalty",
                  [](SamplingParams& p, const std::string& f, const Json& v) { p.frequency_penalty = to_double(f, v); }},
    SamplingField{"repetition_penalty",
                  [](SamplingParams& p, const std::string& f, const Json& v) { p.repetition_penalty = to_double(f, v); }},
    SamplingField{"logit_bias", [](SamplingParams& p, const std::string& f, const Json& v) { p.logit_bias = to_logit_bias(f, v); }},
    SamplingField{"logprobs", [](SamplingParams& p, const std::string& f, const Json& v) { p.logprobs = to_small_int(f, v); }},
    SamplingField{"prompt_logprobs",
                  [](SamplingParams& p, const std::string& f, const Json& v) { p.prompt_logprobs = to_small_int(f, v); }},
};

/// Minus infinity is not JSON: it is written as -9999.0, as clients of other engines expect.
double json_logprob(double logprob) {
  return std::isfinite(logprob) ? logprob : -9999.0;
}

Json logprob_to_json(const TokenLogprob& entry) {
  Json top = Json::array();
  for (const auto& [id, logprob] : entry.top) top.push_back({id, json_logprob(logprob)});
  return {{"token_id", entry.token_id}, {"logprob", json_logprob(entry.logprob)}, {"top", std::move(top)}};
}

}  // namespace

bool set_sampling_field(SamplingParams& sampling, const std::string& field, const Json& value) {
  const auto* match = std::find_if(kSamplingFields.begin(), kSamplingFields.end(), [&](const SamplingField& f) { return f.name == field; });
  if (match == kSamplingFields.end()) return false;
  match->set(sampling, field, value);
  return true;
}

GenerateRequest parse_request_json(const Json& object, const SamplingParams& defaults) {
  if (!object.is_object()) fail(ErrorKind::kInvalidRequest, "a request is {}; it must be a JSON object", shown(object));
  GenerateRequest request;
  request.sampling = defaults;
  int prompts = 0;
  ChatPrompt chat;
  for (const auto& [field, value] : object.items()) {
    if (value.is_null()) continue;
    if (field == "prompt") {
      if (!value.is_string()) fail_field(field, value, "a string");
      request.prompt = TextPrompt{value.get<std::string>()};
      ++prompts;
    } else if (field == "prompt_token_ids") {
      request.prompt = TokenPrompt{to_ids(field, value)};
      ++prompts;
    } else if (field == "messages") {
      if (!value.is_array()) fail_field(field, value, "a list of messages");
      chat.messages_json = value.dump();
      ++prompts;
    } else if (field == "tools") {
      if (!value.is_array()) fail_field(field, value, "a list of tools");
      chat.tools_json = value.dump();
    } else if (field == "chat_template_kwargs") {
      if (!value.is_object()) fail_field(field, value, "an object");
      chat.template_kwargs_json = value.dump();
    } else {
      if (!set_sampling_field(request.sampling, field, value)) {
        std::string known = "prompt, prompt_token_ids, messages, tools, chat_template_kwargs";
        for (const SamplingField& f : kSamplingFields) known += std::string(", ") + f.name;
        fail_param(ErrorKind::kInvalidRequest, field, "unknown field '{}'; known are {}", field, known);
      }
    }
  }
  if (prompts != 1) {
    fail_param(ErrorKind::kInvalidRequest, "prompt", "a request has {} of 'prompt', 'prompt_token_ids', 'messages'; it must have one",
               prompts);
  }
  const bool is_chat = !chat.messages_json.empty();
  if (!is_chat && (!chat.tools_json.empty() || !chat.template_kwargs_json.empty())) {
    fail_param(ErrorKind::kInvalidRequest, "tools", "'tools' and 'chat_template_kwargs' need 'messages'");
  }
  if (is_chat) request.prompt = std::move(chat);
  return request;
}

Json result_to_json(const GenerateResult& result) {
  Json json = {{"index", result.index},         {"choice", result.choice}, {"prompt_token_ids", result.prompt_token_ids},
               {"token_ids", result.token_ids}, {"text", result.text},     {"finish_reason", finish_reason_name(result.finish_reason)}};
  if (const auto* text = std::get_if<std::string>(&result.matched_stop)) {
    json["matched_stop"] = *text;
  } else if (const auto* id = std::get_if<int32_t>(&result.matched_stop)) {
    json["matched_stop"] = *id;
  } else {
    json["matched_stop"] = nullptr;
  }
  json["seed"] = result.seed;
  json["usage"] = {{"prompt_tokens", result.prompt_token_ids.size()},
                   {"completion_tokens", result.token_ids.size()},
                   {"cached_tokens", result.cached_tokens}};
  json["timing_us"] = {{"queue", result.queue_us}, {"prefill", result.prefill_us}, {"decode", result.decode_us}};
  if (!result.logprobs.empty()) {
    Json& list = json["logprobs"] = Json::array();
    for (const TokenLogprob& entry : result.logprobs) list.push_back(logprob_to_json(entry));
  }
  if (!result.prompt_logprobs.empty()) {
    Json& list = json["prompt_logprobs"] = Json::array();
    for (const auto& entry : result.prompt_logprobs) list.push_back(entry.has_value() ? logprob_to_json(*entry) : Json(nullptr));
  }
  if (result.error.has_value()) {
    json["error"] = {{"type", result.error->type}, {"message", result.error->message}};
    json["error"]["param"] = result.error->param.empty() ? Json(nullptr) : Json(result.error->param);
  } else {
    json["error"] = nullptr;
  }
  return json;
}

}  // namespace minisgl
