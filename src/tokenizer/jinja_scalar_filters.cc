#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

/// The value itself if it is a string, else str(value).
Value soft_string(Heap& heap, const Value& value) {
  return value.is_string() ? value : heap.string(to_text(heap, value));
}

Value call_method(Heap& heap, const Value& value, std::string_view name, const Arguments& arguments) {
  return call_value(*find_method(heap, soft_string(heap, value), name), arguments);
}

Value upper(Heap& heap, const Value& input, const Arguments& arguments) {
  return call_method(heap, input, "upper", arguments);
}
Value lower(Heap& heap, const Value& input, const Arguments& arguments) {
  return call_method(heap, input, "lower", arguments);
}
Value capitalize(Heap& heap, const Value& input, const Arguments& arguments) {
  return call_method(heap, input, "capitalize", arguments);
}

Value trim(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("trim", arguments, {"chars"});
  return call_method(heap, input, "strip", Arguments{bound.has(0) ? std::vector<Value>{bound[0]} : std::vector<Value>{}, {}});
}

Value center(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("center", arguments, {"width"});
  return call_method(heap, input, "center", Arguments{{Value(bound.integer(0, 80))}, {}});
}

/// Unlike str.title, words begin only after white space and opening brackets.
Value title(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("title", arguments, {});
  Value string = soft_string(heap, input);
  const std::string& source = string.text();
  heap.spend_characters(source.size());
  std::string out;
  bool at_start = true;
  size_t word = 0;
  auto flush = [&](size_t end) {
    if (end > word) {
      size_t first = text::sequence_bytes(source, word);
      std::string_view piece(source.data() + word, end - word);
      out += text::upper(piece.substr(0, first)) + text::lower(piece.substr(first));
    }
  };
  for (size_t i = 0; i < source.size();) {
    char32_t c = text::code_point_at(source, i);
    size_t size = text::sequence_bytes(source, i);
    bool separates = text::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (separates) {
      if (!at_start) flush(i);
      out.append(source, i, size);
      at_start = true;
    } else if (at_start) {
      word = i;
      at_start = false;
    }
    i += size;
  }
  if (!at_start) flush(source.size());
  return heap.string(std::move(out));
}

Value replace(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  int64_t limit = bound.has(2) && !bound[2].is_none() ? bound.integer(2, -1) : -1;
  auto plain = [&](const Value& value) { return heap.string(to_text(heap, value)); };
  return call_method(heap, plain(input), "replace", Arguments{{plain(bound[0]), plain(bound[1]), Value(limit)}, {}});
}

Value indent(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("indent", arguments, {"width", "first", "blank"});
  require_defined(input);
  if (!input.is_string()) refuse("unsupported operand type(s) for +=: '{}' and 'str'", type_name(input));
  std::string margin;
  if (bound.has(0) && bound[0].is_string()) {
    margin = bound[0].text();
  } else {
    auto width = static_cast<size_t>(std::max<int64_t>(bound.integer(0, 4), 0));
    heap.check_bytes(width);
    margin.assign(width, ' ');
  }
  std::string source = input.text() + "\n";
  auto lines = text::split_lines(source, false);
  bool blank = bound.boolean(2, false);
  size_t added = 0;
  heap.check_bytes(__builtin_mul_overflow(lines.size() + 1, margin.size() + 1, &added) ? SIZE_MAX : added);
  std::string out;
  if (bound.boolean(1, false)) out = margin;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += "\n";
      if (blank || !lines[i].empty()) out += margin;
    }
    out += lines[i];
  }
  return heap.string(std::move(out), input.string().safe);
}

Value truncate(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  int64_t size = bound.integer(0, 255), leeway = bound.has(3) && !bound[3].is_none() ? bound.integer(3, 5) : 5;
  std::string end(bound.text(2, "..."));
  auto end_length = static_cast<int64_t>(text::length(end));
  if (size < end_length) refuse("truncate(): expected length >= {}, got {}", end_length, size);
  if (leeway < 0) refuse("truncate(): expected leeway >= 0, got {}", leeway);
  require_defined(input);
  if (length(input) - leeway <= size) return input;
  Value head = get_slice(heap, input, Value(), Value(size - end_length), Value());
  std::string out = to_text(heap, head);
  if (!bound.boolean(1, false)) out = out.substr(0, out.rfind(' '));
  return heap.string(out + end);
}

Value word_count(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("wordcount", arguments, {});
  std::string source = to_text(heap, input);
  heap.spend_characters(source.size());
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < source.size(); i += text::sequence_bytes(source, i)) {
    auto category = utf8proc_category(static_cast<utf8proc_int32_t>(text::code_point_at(source, i)));
    bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    bool is_digit = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    bool is_word = is_letter || is_digit || source[i] == '_';
    words += is_word && !inside;
    inside = is_word;
  }
  return Value(words);
}

std::string quote_url(std::string_view source, bool in_query) {
  std::string out;
  for (char c : source) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~';
    if (plain || (c == '/' && !in_query)) {
      out.push_back(c);
    } else if (c == ' ' && in_query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value url_encode(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("urlencode", arguments, {});
  if (input.is_string() || !is_iterable(input)) return heap.string(quote_url(to_text(heap, input), false));
  std::string out;
  Value pairs = input.is(Kind::kDict) ? call_value(*find_method(heap, input, "items"), {}) : input;
  for (const Value& pair : iterate(pairs)) {
    auto parts = iterate(pair);
    if (parts.size() != 2) refuse("urlencode needs pairs of name and value");
    if (!out.empty()) out += '&';
    out.append(quote_url(to_text(heap, parts[0]), true)).append("=").append(quote_url(to_text(heap, parts[1]), true));
    heap.check_bytes(out.size());
  }
  return heap.string(std::move(out));
}

Value to_string(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("string", arguments, {});
  return soft_string(heap, input);
}

Value mark_safe(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("safe", arguments, {});
  return heap.string(to_text(heap, input), true);
}

Value force_escape(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("forceescape", arguments, {});
  return heap.string(text::escape_html(to_text(heap, input)), true);
}

Value escape(Heap& heap, const Value& input, const Arguments& arguments) {
  return input.is_string() && input.string().safe ? input : force_escape(heap, input, arguments);
}

Value format(Heap& heap, const Value& input, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    refuse("format(): can't handle positional and keyword arguments at the same time");
  }
  Value string = soft_string(heap, input);
  if (arguments.named.empty()) return percent_format(heap, string, heap.tuple(arguments.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : arguments.named) entries.emplace_back(heap.string(name), value);
  return percent_format(heap, string, make_dict(heap, std::move(entries)));
}

Value default_value(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("default", arguments, {"default_value", "boolean"});
  if (!input.is_undefined() && !(bound.boolean(1, false) && !truth(input))) return input;
  return bound.has(0) ? bound[0] : heap.string("");
}

// ---------------------------------------------------------------------------------------------------------------- numbers

/// The text of a Python number without white space around it and underscores between digits; nothing if it has other characters.
std::optional<std::string> number_text(std::string_view source) {
  std::string out;
  std::string_view stripped = text::strip(source, nullptr, true, true);
  for (size_t i = 0; i < stripped.size(); ++i) {
    auto is_digit = [&](size_t at) { return at < stripped.size() && std::isalnum(static_cast<unsigned char>(stripped[at])); };
    if (stripped[i] == '_') {
      if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
      continue;
    }
    out.push_back(stripped[i]);
  }
  if (out.empty()) return std::nullopt;
  return out;
}

std::optional<double> parse_float(std::string_view source) {
  auto digits = number_text(source);
  if (!digits || digits->find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  double value = std::strtod(digits->c_str(), &end);
  return end == digits->c_str() + digits->size() ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> parse_integer(std::string_view source, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) refuse("int() base must be >= 2 and <= 36, or 0");
  auto digits = number_text(source);
  if (!digits) return std::nullopt;
  bool negative = digits->front() == '-';
  std::string_view rest = *digits;
  if (negative || digits->front() == '+') rest.remove_prefix(1);
  for (auto [letter, prefix_base] : {std::pair('x', 16), std::pair('o', 8), std::pair('b', 2)}) {
    bool prefixed = rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == letter;
    if (prefixed && (base == prefix_base || base == 0)) {
      rest.remove_prefix(2);
      base = prefix_base;
      break;
    }
  }
  if (base == 0) base = 10;
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  std::string number(negative ? "-" : "");
  number.append(rest);
  int64_t value = 0;
  auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), value, static_cast<int>(base));
  if (end != number.data() + number.size() || status == std::errc::invalid_argument) return std::nullopt;
  if (status != std::errc()) refuse("an integer leaves the range of 64 bits");
  return value;
}

int64_t truncate_float(double value) {
  if (!(std::fabs(value) < 9223372036854775808.0)) refuse("an integer leaves the range of 64 bits");
  return static_cast<int64_t>(value);
}

Value to_integer(Heap&, const Value& input, const Arguments& arguments) {
  Bound bound("int", arguments, {"default", "base"});
  require_defined(input);
  Value otherwise = bound.has(0) ? bound[0] : Value(int64_t{0});
  std::optional<double> real;
  if (input.is_string()) {
    if (auto value = parse_integer(input.text(), bound.integer(1, 10))) return Value(*value);
    real = parse_float(input.text());
  } else if (input.is_integral()) {
    return Value(input.integer());
  } else if (input.is(Kind::kFloat)) {
    real = input.real();
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  return Value(truncate_float(*real));
}

Value to_float(Heap&, const Value& input, const Arguments& arguments) {
  Bound bound("float", arguments, {"default"});
  require_defined(input);
  if (input.is_number()) return Value(input.real());
  if (input.is_string()) {
    if (auto value = parse_float(input.text())) return Value(*value);
  }
  return bound.has(0) ? bound[0] : Value(0.0);
}

Value absolute(Heap&, const Value& input, const Arguments& arguments) {
  Bound("abs", arguments, {});
  require_defined(input);
  if (input.is(Kind::kFloat)) return Value(std::fabs(input.real()));
  if (!input.is_integral()) refuse("bad operand type for abs(): '{}'", type_name(input));
  return input.integer() < 0 ? apply_unary(UnaryOperator::kNegate, input) : Value(input.integer());
}

Value round(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("round", arguments, {"precision", "method"});
  int64_t precision = bound.integer(0, 0);
  std::string_view method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") refuse("round(): method must be common, ceil or floor");
  require_defined(input);
  if (!input.is_number()) refuse("type {} doesn't define __round__ method", type_name(input));
  if (precision < -300 || precision > 300) refuse("round(): a precision of {} is not supported", precision);
  if (method != "common") {
    Value scale = apply_binary(heap, BinaryOperator::kPower, Value(int64_t{10}), Value(precision));
    double scaled = apply_binary(heap, BinaryOperator::kMultiply, input, scale).real();
    Value whole(truncate_float(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)));
    return apply_binary(heap, BinaryOperator::kDivide, whole, scale);
  }
  if (input.is_integral() && precision >= 0) return Value(input.integer());
  if (precision < 0) {
    double scale = std::pow(10.0, static_cast<double>(-precision));
    double rounded = std::nearbyint(input.real() / scale) * scale;
    return input.is_integral() ? Value(truncate_float(rounded)) : Value(rounded);
  }
  // Half to even of the exact decimal value, as printing does it.
  if (!std::isfinite(input.real())) return input;
  return Value(std::strtod(fmt::format("{:.{}f}", input.real(), precision).c_str(), nullptr));
}

Value json(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.boolean(0, false);
  style.sort_keys = bound.boolean(3, false);
  if (bound.has(1) && !bound[1].is_none()) {
    style.multi_line = true;
    style.item_separator = std::string(1, ',');
    if (bound[1].is_string()) {
      style.indent = bound[1].text();
    } else {
      auto width = static_cast<size_t>(std::max<int64_t>(bound.integer(1, 0), 0));
      heap.check_bytes(width);
      style.indent.assign(width, ' ');
    }
  }
  if (bound.has(2) && !bound[2].is_none()) {
    auto separators = iterate(bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      refuse("tojson(): separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return heap.string(to_json(heap, input, style));
}

}  // namespace

const FilterTable& scalar_filters() {
  static const FilterTable table = {
      {"abs", absolute},
      {"capitalize", capitalize},
      {"center", center},
      {"d", default_value},
      {"default", default_value},
      {"e", escape},
      {"escape", escape},
      {"float", to_float},
      {"forceescape", force_escape},
      {"format", format},
      {"indent", indent},
      {"int", to_integer},
      {"lower", lower},
      {"replace", replace},
      {"round", round},
      {"safe", mark_safe},
      {"string", to_string},
      {"title", title},
      {"tojson", json},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", upper},
      {"urlencode", url_encode},
      {"wordcount", word_count},
  };
  return table;
}

}  // namespace minisgl::jinja
