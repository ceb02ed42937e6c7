#include "checkpoint/json_fields.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "checkpoint/file_text.h"

namespace minisgl {

using nlohmann::json;

namespace {
constexpr size_t kMaxDepth = 64;
constexpr size_t kBriefBytes = 60;
}  // namespace

json parse_json(std::string_view text, const std::string& origin) {
  refuse_lfs_pointer(text, origin);
  // One set of keys per open object. The parser itself keeps its stack on the heap, so depth costs no recursion.
  std::vector<std::unordered_set<std::string>> keys;
  size_t depth = 0;
  const auto observe = [&](int, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (++depth > kMaxDepth) fail(ErrorKind::kBadModel, "{}: JSON is nested more than {} deep", origin, kMaxDepth);
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        [[fallthrough]];
      case json::parse_event_t::array_end:
        --depth;
        break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get_ref<const std::string&>()).second) {
          fail(ErrorKind::kBadModel, "{}: the key {} appears twice", origin, brief(parsed));
        }
        break;
      case json::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return json::parse(text, observe);
  } catch (const json::parse_error& error) {
    fail(ErrorKind::kBadModel, "{} is not valid JSON (at byte {} of {})", origin, std::min(error.byte, text.size()), text.size());
  } catch (const json::exception&) {
    fail(ErrorKind::kBadModel, "{}: a number in the JSON is out of range", origin);
  }
}

std::string brief(const json& value) {
  // A huge container is not written out only to be cut.
  if (value.is_structured() && value.size() > 16)
    return fmt::format("{} of {} entries", value.is_array() ? "an array" : "an object", value.size());
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kBriefBytes) {
    size_t end = kBriefBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
    text = text.substr(0, end) + "...";
  }
  return text;
}

JsonFields::JsonFields(const json& object, std::string origin, std::string prefix)
    : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {
  if (!object.is_object()) fail(ErrorKind::kBadModel, "{}: expected a JSON object, found {}", origin_, brief(object));
}

const json* JsonFields::find(const char* key) const {
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> names;
  for (const auto& item : object_.items()) names.push_back(item.key());
  return names;
}

void JsonFields::refuse(ErrorKind kind, const char* key, const std::string& why) const {
  const json* value = find(key);
  fail_param(kind, prefix_ + key, "{}: {}{} is {}, {}", origin_, prefix_, key, value == nullptr ? "missing" : brief(*value), why);
}

void JsonFields::bad(const char* key, const std::string& allowed) const {
  refuse(ErrorKind::kBadModel, key, allowed);
}

void JsonFields::not_supported(const char* key, const std::string& why) const {
  refuse(ErrorKind::kNotSupported, key, why);
}

std::optional<int64_t> JsonFields::integer(const char* key, int64_t low, int64_t high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string allowed = fmt::format("it must be an integer from {} to {}", low, high);
  int64_t result = 0;
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) bad(key, allowed);
    result = static_cast<int64_t>(number);
  } else if (value->is_number_integer()) {
    result = value->get<int64_t>();
  } else if (value->is_number_float()) {
    const double number = value->get<double>();
    // 2^53: beyond it a double no longer holds every integer.
    if (!(std::abs(number) <= 0x1p53) || number != std::floor(number)) bad(key, allowed);
    result = static_cast<int64_t>(number);
  } else {
    bad(key, allowed);
  }
  if (result < low || result > high) bad(key, allowed);
  return result;
}

std::optional<double> JsonFields::number(const char* key, double low, double high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) bad(key, fmt::format("it must be a number from {} to {}", low, high));
  return number;
}

std::optional<bool> JsonFields::boolean(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) bad(key, "it must be true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) bad(key, "it must be a string");
  return value->get<std::string>();
}

std::optional<JsonFields> JsonFields::object(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) bad(key, "it must be an object");
  return JsonFields(*value, origin_, prefix_ + key + ".");
}

template <typename T>
T JsonFields::required(const char* key, std::optional<T> value) const {
  if (!value) fail_param(ErrorKind::kBadModel, prefix_ + key, "{}: {}{} is missing", origin_, prefix_, key);
  return *value;
}

int64_t JsonFields::required_integer(const char* key, int64_t low, int64_t high) const {
  return required(key, integer(key, low, high));
}

double JsonFields::required_number(const char* key, double low, double high) const {
  return required(key, number(key, low, high));
}

}  // namespace minisgl
