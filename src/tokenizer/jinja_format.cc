#include "tokenizer/jinja_format.h"

#include <charconv>
#include <cmath>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

/// Digits after the point that a template may ask for; a float has no more than 1,100.
constexpr int64_t kMaxPrecision = 2000;

/// How one value is laid out; the union of what both mini-languages can say.
struct Layout {
  std::string fill = " ";
  char align = '\0';  ///< '<', '>', '^', '=' or not given
  char sign = '-';    ///< '-', '+' or ' '
  bool alternate = false, thousands = false, zeros = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

std::string group_thousands(const std::string& digits) {
  size_t end = 0;
  while (end < digits.size() && digits[end] >= '0' && digits[end] <= '9') ++end;
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out + digits.substr(end);
}

/// Pads `prefix + body` to the width, between the two for '='.
std::string pad(Heap& heap, const Layout& layout, std::string_view prefix, const std::string& body, char default_align) {
  auto size = static_cast<int64_t>(prefix.size() + text::length(body));
  int64_t missing = layout.width - size;
  if (missing <= 0) return std::string(prefix) + body;
  heap.check_bytes(static_cast<size_t>(missing) * layout.fill.size());
  heap.spend_bytes(static_cast<size_t>(missing) * layout.fill.size());
  auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += layout.fill;
    return out;
  };
  switch (layout.align ? layout.align : default_align) {
    case '<':
      return std::string(prefix) + body + fill(missing);
    case '^':
      return fill(missing / 2) + std::string(prefix) + body + fill(missing - missing / 2);
    case '=':
      return std::string(prefix) + fill(missing) + body;
    default:
      return fill(missing) + std::string(prefix) + body;
  }
}

std::string sign_of(const Layout& layout, bool negative) {
  if (negative) return "-";
  return layout.sign == '-' ? "" : std::string(1, layout.sign);
}

std::string lay_out_integer(Heap& heap, const Layout& layout, int64_t value) {
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits;
  std::string_view prefix;
  switch (layout.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude), prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude), prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude), prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude), prefix = "0b";
      break;
    default:
      digits = fmt::format("{}", magnitude);
  }
  if (layout.precision > static_cast<int64_t>(digits.size())) digits.insert(0, static_cast<size_t>(layout.precision) - digits.size(), '0');
  if (layout.thousands) digits = group_thousands(digits);
  std::string before = sign_of(layout, value < 0);
  if (layout.alternate) before.append(prefix);
  return pad(heap, layout, before, digits, '>');
}

std::string lay_out_float(Heap& heap, const Layout& layout, double value) {
  bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::fabs(value);
  int precision = static_cast<int>(layout.precision < 0 ? 6 : layout.precision);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
  } else {
    switch (layout.type) {
      case 'f':
      case 'F':
        digits = fmt::format("{:.{}f}", magnitude, precision);
        break;
      case '%':
        digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
        break;
      case 'e':
        digits = fmt::format("{:.{}e}", magnitude, precision);
        break;
      case 'E':
        digits = fmt::format("{:.{}E}", magnitude, precision);
        break;
      case 'g':
        digits = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
        break;
      case 'G':
        digits = fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
        break;
      default:
        if (layout.precision < 0) {
          digits = text::print_float(magnitude);
        } else {
          digits = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
          if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
        }
    }
  }
  if (layout.thousands) digits = group_thousands(digits);
  return pad(heap, layout, sign_of(layout, negative), digits, '>');
}

std::string cut(std::string_view text, int64_t characters) {
  size_t end = 0;
  for (int64_t i = 0; i < characters && end < text.size(); ++i) end += text::sequence_bytes(text, end);
  return std::string(text.substr(0, end));
}

// ---------------------------------------------------------------------------------------------------------------- percent

/// Reads digits at `*i`; throws past what a width may be.
int64_t read_number(std::string_view format, size_t* i) {
  int64_t value = 0;
  while (*i < format.size() && format[*i] >= '0' && format[*i] <= '9') {
    value = value * 10 + (format[*i] - '0');
    if (value > INT32_MAX) refuse("a width or precision in the format '{}' is too large", format.substr(0, 80));
    ++*i;
  }
  return value;
}

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const Value& format, const Value& arguments)
      : heap_(heap), format_(format.text()), safe_(format.string().safe), arguments_(arguments) {
    if (arguments.is(Kind::kTuple)) {
      values_ = arguments.sequence().items;
    } else {
      values_ = {arguments};
    }
  }

  std::string run() {
    std::string out;
    for (size_t i = 0; i < format_.size();) {
      if (format_[i] != '%') {
        size_t end = std::min(format_.find('%', i), format_.size());
        out.append(format_, i, end - i);
        i = end;
        continue;
      }
      ++i;
      out += conversion(&i);
      heap_.check_bytes(out.size());
    }
    bool all_used = used_ >= values_.size() || by_name_;
    if (!all_used && !(arguments_.is(Kind::kDict) && used_ == 0) && !(arguments_.is(Kind::kList) && used_ == 0)) {
      refuse("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  std::string conversion(size_t* i) {
    Value named;
    bool has_name = *i < format_.size() && format_[*i] == '(';
    if (has_name) {
      size_t end = format_.find(')', *i);
      if (end == std::string_view::npos) refuse("incomplete format key");
      if (!arguments_.is(Kind::kDict)) refuse("format requires a mapping");
      std::string_view name = format_.substr(*i + 1, end - *i - 1);
      const Value* found = arguments_.dict().find(name);
      if (!found) refuse("KeyError: '{}'", name);
      named = *found;
      by_name_ = true;
      *i = end + 1;
    }
    Layout layout;
    layout.align = '>';
    for (; *i < format_.size() && std::string_view("-+ #0").find(format_[*i]) != std::string_view::npos; ++*i) {
      switch (format_[*i]) {
        case '-':
          layout.align = '<';
          break;
        case '+':
          layout.sign = '+';
          break;
        case ' ':
          layout.sign = layout.sign == '+' ? '+' : ' ';
          break;
        case '#':
          layout.alternate = true;
          break;
        default:
          layout.zeros = true;
      }
    }
    layout.width = read_size(i);
    if (*i < format_.size() && format_[*i] == '.') {
      ++*i;
      layout.precision = read_size(i);
    }
    if (*i < format_.size() && std::string_view("hlL").find(format_[*i]) != std::string_view::npos) ++*i;
    if (*i >= format_.size()) refuse("incomplete format");
    char type = format_[(*i)++];
    if (type == '%') return "%";
    return print(has_name ? named : next(), layout, type);
  }

  int64_t read_size(size_t* i) {
    if (*i >= format_.size() || format_[*i] != '*') return read_number(format_, i);
    ++*i;
    Value value = next();
    if (!value.is_integral()) refuse("* wants int");
    return std::clamp<int64_t>(value.integer(), 0, INT32_MAX);
  }

  Value next() {
    if (used_ >= values_.size()) refuse("not enough arguments for format string");
    return values_[used_++];
  }

  std::string print(const Value& value, Layout layout, char type) {
    if (type == 's' || type == 'r' || type == 'a') {
      std::string printed = type == 's' ? to_text(heap_, value) : to_repr(heap_, value);
      if (safe_ && !(value.is_string() && value.string().safe)) printed = text::escape_html(printed);
      if (layout.precision >= 0) printed = cut(printed, layout.precision);
      return pad(heap_, layout, "", printed, '>');
    }
    if (type == 'c') {
      std::string printed;
      if (value.is_string() && value.string().length == 1) {
        printed = value.text();
      } else if (value.is_integral() && value.integer() >= 0 && value.integer() < 0x110000 && (value.integer() >> 11) != 0x1B) {
        text::append_utf8(&printed, static_cast<char32_t>(value.integer()));
      } else {
        refuse("%c requires int or char");
      }
      return pad(heap_, layout, "", printed, '>');
    }
    require_defined(value);
    if (layout.precision > kMaxPrecision) refuse("a precision of {} is too large", layout.precision);
    if (layout.zeros && layout.align != '<') layout.fill.front() = '0', layout.align = '=';
    layout.type = type == 'i' || type == 'u' ? 'd' : type;
    if (std::string_view("dxXo").find(layout.type) != std::string_view::npos) {
      bool from_float = layout.type == 'd' && value.is(Kind::kFloat);
      if (from_float && !(std::fabs(value.real()) < 9.2e18)) refuse("cannot convert the float to an integer of 64 bits");
      if (!value.is_integral() && !from_float) {
        refuse("%{} format: {} is required, not {}", type, layout.type == 'd' ? "a real number" : "an integer", type_name(value));
      }
      return lay_out_integer(heap_, layout, from_float ? static_cast<int64_t>(value.real()) : value.integer());
    }
    if (std::string_view("fFeEgG").find(type) != std::string_view::npos) {
      if (!value.is_number()) refuse("must be real number, not {}", type_name(value));
      return lay_out_float(heap_, layout, value.real());
    }
    refuse("unsupported format character '{}'", type);
  }

  Heap& heap_;
  std::string_view format_;
  bool safe_;
  const Value& arguments_;
  std::vector<Value> values_;
  size_t used_ = 0;
  bool by_name_ = false;
};

// ----------------------------------------------------------------------------------------------------------------- braces

Layout parse_spec(std::string_view spec) {
  Layout layout;
  size_t i = 0;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!spec.empty()) {
    size_t first = text::sequence_bytes(spec, 0);
    if (first < spec.size() && is_align(spec[first])) {
      layout.fill = std::string(spec.substr(0, first));
      layout.align = spec[first];
      i = first + 1;
    } else if (is_align(spec[0])) {
      layout.align = spec[0];
      i = 1;
    }
  }
  auto take = [&](char c) { return i < spec.size() && spec[i] == c && (++i, true); };
  if (take('+'))
    layout.sign = '+';
  else if (take(' '))
    layout.sign = ' ';
  else
    take('-');
  layout.alternate = take('#');
  if (take('0')) {
    layout.zeros = true;
    if (!layout.align) layout.fill.front() = '0', layout.align = '=';
  }
  layout.width = read_number(spec, &i);
  layout.thousands = take(',');
  if (take('.')) {
    if (i >= spec.size() || spec[i] < '0' || spec[i] > '9') refuse("format specifier missing precision");
    layout.precision = read_number(spec, &i);
  }
  if (i < spec.size()) layout.type = spec[i++];
  if (i < spec.size()) refuse("invalid format specifier '{}'", spec.substr(0, 80));
  return layout;
}

std::string format_value(Heap& heap, const Value& value, std::string_view spec) {
  if (spec.empty()) return to_text(heap, value);
  Layout layout = parse_spec(spec);
  auto refuse_type = [&] { refuse("unknown format code '{}' for object of type '{}'", layout.type, type_name(value)); };
  if (value.is_string()) {
    if (layout.type && layout.type != 's') refuse_type();
    if (layout.align == '=' && !layout.zeros) refuse("'=' alignment not allowed in string format specifier");
    if (layout.zeros && layout.align == '=') layout.align = '<';
    return pad(heap, layout, "", layout.precision >= 0 ? cut(value.text(), layout.precision) : value.text(), '<');
  }
  if (!value.is_number()) refuse("unsupported format string passed to {}.__format__", type_name(value));
  if (layout.precision > kMaxPrecision) refuse("a precision of {} is too large", layout.precision);
  bool integer_type = layout.type && std::string_view("dxXob").find(layout.type) != std::string_view::npos;
  bool float_type = layout.type && std::string_view("fFeEgG%").find(layout.type) != std::string_view::npos;
  if (value.is_integral() && (integer_type || !layout.type)) {
    if (layout.precision >= 0) refuse("precision not allowed in integer format specifier");
    return lay_out_integer(heap, layout, value.integer());
  }
  if (layout.type && !float_type) refuse_type();
  return lay_out_float(heap, layout, value.real());
}

class BraceFormatter {
 public:
  BraceFormatter(Heap& heap, const Arguments& arguments, bool safe) : heap_(heap), arguments_(arguments), safe_(safe) {}

  /// `depth`: a specification may hold fields itself, one level deep.
  std::string run(std::string_view format, int depth) {
    if (depth > 1) refuse("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      char c = format[i];
      if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
        out.push_back(c);
        i += 2;
      } else if (c == '}') {
        refuse("Single '}}' encountered in format string");
      } else if (c == '{') {
        size_t end = closing(format, i);
        out += field(format.substr(i + 1, end - i - 1), depth);
        i = end + 1;
      } else {
        out.push_back(c);
        ++i;
      }
      heap_.check_bytes(out.size());
    }
    heap_.spend_bytes(out.size());
    return out;
  }

 private:
  static size_t closing(std::string_view format, size_t begin) {
    int level = 0;
    for (size_t i = begin; i < format.size(); ++i) {
      if (format[i] == '{') ++level;
      if (format[i] == '}' && --level == 0) return i;
    }
    refuse("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    size_t name_end = 0;
    while (name_end < text.size() && text[name_end] != '!' && text[name_end] != ':') {
      if (text[name_end] == '[') name_end = std::min(text.find(']', name_end), text.size() - 1);
      ++name_end;
    }
    Value value = lookup(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    std::string printed;
    if (!rest.empty() && rest[0] == '!') {
      char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion == 'r') {
        value = heap_.string(to_repr(heap_, value));
      } else if (conversion == 's') {
        value = heap_.string(to_text(heap_, value));
      } else {
        refuse("unknown conversion specifier in '{}'", text.substr(0, 80));
      }
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') refuse("expected ':' after conversion specifier");
    }
    std::string spec = rest.empty() ? "" : run(rest.substr(1), depth + 1);
    printed = format_value(heap_, value, spec);
    return safe_ && !(value.is_string() && value.string().safe) ? text::escape_html(printed) : printed;
  }

  Value lookup(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end));
    while (end < path.size()) {
      size_t begin = end + 1;
      if (path[end] == '.') {
        end = std::min(path.find_first_of(".[", begin), path.size());
        value = get_attribute(heap_, value, path.substr(begin, end - begin));
      } else if (path[end] == '[') {
        end = path.find(']', begin);
        if (end == std::string_view::npos) refuse("Missing ']' in format string");
        std::string_view key = path.substr(begin, end - begin);
        value = get_item(heap_, value, is_number(key) ? Value(number(key)) : heap_.string(std::string(key)));
        ++end;
      } else {
        refuse("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }
  static int64_t number(std::string_view text) {
    size_t i = 0;
    return read_number(text, &i);
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      if (name.empty() ? numbered_ : automatic_ > 0) refuse("cannot mix automatic and manual field numbering");
      numbered_ |= !name.empty();
      auto index = static_cast<size_t>(name.empty() ? automatic_++ : number(name));
      if (index >= arguments_.positional.size()) refuse("Replacement index {} out of range for positional args tuple", index);
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    refuse("KeyError: '{}'", name);
  }

  Heap& heap_;
  const Arguments& arguments_;
  bool safe_;
  int64_t automatic_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value percent_format(Heap& heap, const Value& format, const Value& arguments) {
  require_defined(format);
  return heap.string(PercentFormatter(heap, format, arguments).run(), format.string().safe);
}

Value brace_format(Heap& heap, const Value& format, const Arguments& arguments) {
  bool safe = format.string().safe;
  return heap.string(BraceFormatter(heap, arguments, safe).run(format.text(), 0), safe);
}

}  // namespace minisgl::jinja
