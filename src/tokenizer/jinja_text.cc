#include "tokenizer/jinja_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace minisgl::jinja::text {

size_t length(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t sequence_bytes(std::string_view text, size_t offset) {
  size_t end = offset + 1;
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return end - offset;
}

char32_t code_point_at(std::string_view text, size_t offset) {
  if (static_cast<unsigned char>(text[offset]) < 0x80) return static_cast<unsigned char>(text[offset]);
  utf8proc_int32_t code_point = -1;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset, static_cast<utf8proc_ssize_t>(text.size() - offset),
                   &code_point);
  return code_point < 0 ? U'\uFFFD' : static_cast<char32_t>(code_point);
}

void append_utf8(std::string* out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

bool is_valid_utf8(std::string_view text) {
  auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    if (data[i] < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t code_point;
    utf8proc_ssize_t size = utf8proc_iterate(data + i, static_cast<utf8proc_ssize_t>(text.size() - i), &code_point);
    if (size <= 0) return false;
    i += static_cast<size_t>(size);
  }
  return true;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

namespace {

template <typename Visit>
void for_each_code_point(std::string_view text, Visit visit) {
  for (size_t i = 0; i < text.size();) {
    size_t size = sequence_bytes(text, i);
    visit(code_point_at(text, i), i);
    i += size;
  }
}

bool is_letter_category(char32_t c, utf8proc_category_t category) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == category;
}

bool is_upper(char32_t c) {
  return is_letter_category(c, UTF8PROC_CATEGORY_LU);
}
bool is_lower(char32_t c) {
  return is_letter_category(c, UTF8PROC_CATEGORY_LL);
}
bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || is_letter_category(c, UTF8PROC_CATEGORY_LT);
}

/// utf8proc maps one code point to one; the mappings to several that occur in running text are listed here (Unicode SpecialCasing.txt).
void append_upper(std::string* out, char32_t c, bool title) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
    return;
  }
  switch (c) {
    case U'\u00DF':
      out->append(title ? "Ss" : "SS");
      return;
    case U'\u0149':
      out->append("\u02BCN");
      return;
    case U'\uFB00':
      out->append(title ? "Ff" : "FF");
      return;
    case U'\uFB01':
      out->append(title ? "Fi" : "FI");
      return;
    case U'\uFB02':
      out->append(title ? "Fl" : "FL");
      return;
    case U'\uFB03':
      out->append(title ? "Ffi" : "FFI");
      return;
    case U'\uFB04':
      out->append(title ? "Ffl" : "FFL");
      return;
    case U'\uFB05':
    case U'\uFB06':
      out->append(title ? "St" : "ST");
      return;
    default:
      break;
  }
  auto mapped = title ? utf8proc_totitle(static_cast<utf8proc_int32_t>(c)) : utf8proc_toupper(static_cast<utf8proc_int32_t>(c));
  append_utf8(out, static_cast<char32_t>(mapped));
}

/// `text` and `offset` give the context that a final sigma depends on.
void append_lower(std::string* out, char32_t c, std::string_view text, size_t offset) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  if (c == U'\u0130') {
    out->append("i\u0307");
    return;
  }
  if (c == U'\u03A3') {
    size_t before = offset;
    while (before > 0 && (text[before - 1] & 0xC0) == 0x80) --before;
    bool after_letter = before > 0 && is_cased(code_point_at(text, before - 1));
    size_t after = offset + 2;
    bool before_letter = after < text.size() && is_cased(code_point_at(text, after));
    append_utf8(out, after_letter && !before_letter ? U'\u03C2' : U'\u03C3');
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace

std::string upper(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t) { append_upper(&out, c, false); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t i) { append_lower(&out, c, text, i); });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_code_point(text, [&](char32_t c, size_t i) {
    if (inside) {
      append_lower(&out, c, text, i);
    } else {
      append_upper(&out, c, true);
    }
    inside = is_cased(c);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t i) {
    if (i == 0) {
      append_upper(&out, c, true);
    } else {
      append_lower(&out, c, text, i);
    }
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c, size_t i) {
    if (is_upper(c)) {
      append_lower(&out, c, text, i);
    } else if (is_lower(c)) {
      append_upper(&out, c, false);
    } else {
      append_utf8(&out, c);
    }
  });
  return out;
}

std::string_view strip(std::string_view text, const std::string_view* characters, bool left, bool right) {
  auto removable = [&](size_t offset, size_t size) {
    if (!characters) return is_space(code_point_at(text, offset));
    return characters->find(text.substr(offset, size)) != std::string_view::npos;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t size = sequence_bytes(text, begin);
    if (!removable(begin, size)) break;
    begin += size;
  }
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (text[last] & 0xC0) == 0x80) --last;
    if (!removable(last, end - last)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  std::string_view rest = strip(text, nullptr, true, true);
  auto unlimited = [&] { return limit < 0 || static_cast<int64_t>(parts.size()) < limit; };
  if (from_right) {
    while (!rest.empty() && unlimited()) {
      size_t begin = rest.size();
      while (begin > 0) {
        size_t last = begin - 1;
        while (last > 0 && (rest[last] & 0xC0) == 0x80) --last;
        if (is_space(code_point_at(rest, last))) break;
        begin = last;
      }
      parts.push_back(rest.substr(begin));
      rest = strip(rest.substr(0, begin), nullptr, false, true);
    }
    // The part that is left keeps its inner and leading space; only its end was stripped.
    if (!rest.empty()) parts.push_back(rest);
    std::reverse(parts.begin(), parts.end());
    if (limit == 0 && parts.size() == 1) parts[0] = strip(text, nullptr, false, true);
    return parts;
  }
  while (!rest.empty() && unlimited()) {
    size_t end = 0;
    while (end < rest.size() && !is_space(code_point_at(rest, end))) end += sequence_bytes(rest, end);
    parts.push_back(rest.substr(0, end));
    rest = strip(rest.substr(end), nullptr, true, false);
  }
  if (!rest.empty()) {
    // What is left after the last split keeps its trailing space.
    parts.emplace_back(rest.data(), static_cast<size_t>(text.data() + text.size() - rest.data()));
  }
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    } else {
      parts.push_back(text.substr(0, found));
      text = text.substr(found + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    char32_t c = code_point_at(text, i);
    size_t end = i;
    i += sequence_bytes(text, i);
    bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(begin, (keep_ends ? i : end) - begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit) {
  std::string out;
  auto more = [&](int64_t done) { return limit < 0 || done < limit; };
  int64_t done = 0;
  size_t i = 0;
  if (from.empty()) {
    while (more(done)) {
      out.append(to);
      ++done;
      if (i >= text.size()) return out;
      size_t size = sequence_bytes(text, i);
      out.append(text.substr(i, size));
      i += size;
    }
    return out.append(text.substr(i));
  }
  while (more(done)) {
    size_t found = text.find(from, i);
    if (found == std::string_view::npos) break;
    out.append(text.substr(i, found - i)).append(to);
    i = found + from.size();
    ++done;
  }
  return out.append(text.substr(i));
}

size_t count(std::string_view text, std::string_view needle) {
  if (needle.empty()) return length(text) + 1;
  size_t result = 0;
  for (size_t i = text.find(needle); i != std::string_view::npos; i = text.find(needle, i + needle.size())) ++result;
  return result;
}

std::string quote(std::string_view text) {
  char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for_each_code_point(text, [&](char32_t c, size_t) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(&out, c);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  });
  out.push_back(quote);
  return out;
}

std::string print_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view printed(buffer, static_cast<size_t>(end - buffer));
  size_t e = printed.find('e');
  int exponent = std::stoi(std::string(printed.substr(e + 1)));
  // Python switches to the scientific form at these exponents.
  if (exponent < -4 || exponent >= 16) return std::string(printed);
  end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace minisgl::jinja::text
