#pragma once

#include <string>

#include "tokenizer/jinja_value.h"

/// Values as text: Python's str() and repr(), and json.dumps.
namespace minisgl::jinja {

/// str(value); an undefined value is empty.
std::string to_text(Heap& heap, const Value& value);
/// repr(value).
std::string to_repr(Heap& heap, const Value& value);

/// The arguments of json.dumps that a template may set.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multi_line = false;  ///< each element on a line of its own, after `indent` per level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// json.dumps(value); throws for what JSON cannot hold.
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace minisgl::jinja
