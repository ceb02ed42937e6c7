#include "base/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace minisgl {

using nlohmann::ordered_json;

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view what, ErrorKind kind) {
  // Keys of each open object or array. The parser keeps its own stack on the heap, so depth costs no recursion here.
  std::vector<int> keys;
  const auto observe = [&](int, ordered_json::parse_event_t event, ordered_json&) {
    switch (event) {
      case ordered_json::parse_event_t::object_start:
      case ordered_json::parse_event_t::array_start:
        keys.push_back(0);
        if (keys.size() > kMaxJsonDepth) fail(kind, "{} is nested more than {} deep", what, kMaxJsonDepth);
        break;
      case ordered_json::parse_event_t::object_end:
      case ordered_json::parse_event_t::array_end:
        keys.pop_back();
        break;
      case ordered_json::parse_event_t::key:
        if (++keys.back() > kMaxJsonKeys) fail(kind, "{} has an object of more than {} keys", what, kMaxJsonKeys);
        break;
      case ordered_json::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return ordered_json::parse(text, observe);
  } catch (const ordered_json::parse_error& error) {
    fail(kind, "{} is not valid JSON (at byte {} of {})", what, std::min(error.byte, text.size()), text.size());
  } catch (const ordered_json::exception&) {
    fail(kind, "{} has a number that is out of range", what);
  }
}

}  // namespace minisgl
