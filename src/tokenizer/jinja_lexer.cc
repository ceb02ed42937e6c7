#include "tokenizer/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

void fail_syntax(int line, const std::string& message) {
  fail(ErrorKind::kBadModel, "chat template, line {}: {}", line, message);
}

namespace {

constexpr size_t kNone = std::string_view::npos;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

/// Line ends as "\n"; one at the end of the template is dropped.
std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (position_ < rest_.size()) text_and_tag();
    tokens_.push_back({TokenKind::kEnd, line_, ""});
    return std::move(tokens_);
  }

 private:
  /// Moves on, counting lines.
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(rest_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         rest_.begin() + static_cast<std::ptrdiff_t>(position_ + bytes), '\n'));
    position_ += bytes;
  }

  bool at(std::string_view what) const { return rest_.substr(position_, what.size()) == what; }

  void skip_space() {
    while (position_ < rest_.size() && text::is_space(text::code_point_at(rest_, position_))) {
      advance(text::sequence_bytes(rest_, position_));
    }
  }

  void skip_one_newline() {
    if (at("\n")) advance(1);
  }

  /// The first of `{{`, `{%`, `{#` from `from` on.
  size_t find_tag(size_t from) const {
    for (size_t i = rest_.find('{', from); i != kNone && i + 1 < rest_.size(); i = rest_.find('{', i + 1)) {
      if (rest_[i + 1] == '{' || rest_[i + 1] == '%' || rest_[i + 1] == '#') return i;
    }
    return kNone;
  }

  /// Removes what the sign of the tag that follows asks for from the end of the text before it.
  std::string_view strip_before_tag(std::string_view piece, size_t begin, char sign, bool is_print) const {
    if (sign == '-') return text::strip(piece, nullptr, false, true);
    if (sign == '+' || is_print) return piece;
    size_t line_begin = piece.rfind('\n');
    line_begin = line_begin == kNone ? 0 : line_begin + 1;
    // lstrip_blocks: only where nothing but white space stands between the start of the line and the tag.
    bool starts_line = line_begin > 0 || begin == 0 || rest_[begin - 1] == '\n';
    if (starts_line && text::strip(piece.substr(line_begin), nullptr, true, true).empty()) return piece.substr(0, line_begin);
    return piece;
  }

  void add_text(std::string_view piece, int line) {
    if (!piece.empty()) tokens_.push_back({TokenKind::kText, line, std::string(piece)});
  }

  char sign_at(size_t position) const {
    return position < rest_.size() && (rest_[position] == '-' || rest_[position] == '+') ? rest_[position] : '\0';
  }

  void text_and_tag() {
    size_t begin = position_, tag = find_tag(position_);
    int line = line_;
    if (tag == kNone) {
      add_text(rest_.substr(begin), line);
      advance(rest_.size() - begin);
      return;
    }
    char type = rest_[tag + 1], sign = sign_at(tag + 2);
    add_text(strip_before_tag(rest_.substr(begin, tag - begin), begin, sign, type == '{'), line);
    advance(tag - begin);
    if (type == '%' && raw_block()) return;
    advance(sign ? 3 : 2);
    if (type == '#') {
      comment();
    } else {
      tag_tokens(type == '{');
    }
  }

  void comment() {
    int line = line_;
    size_t end = rest_.find("#}", position_);
    if (end == kNone) fail_syntax(line, "missing end of comment tag");
    char sign = end > position_ && (rest_[end - 1] == '-' || rest_[end - 1] == '+') ? rest_[end - 1] : '\0';
    advance(end + 2 - position_);
    after_block(sign);
  }

  /// White space after the end of a block or comment.
  void after_block(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+') {
      skip_one_newline();
    }
  }

  /// Skips `{%`, a sign and a word from `position`; the position after it, or kNone if the tag is another.
  size_t match_word_tag(size_t position, std::string_view word) const {
    position += 2;
    if (sign_at(position)) ++position;
    while (position < rest_.size() && text::is_space(text::code_point_at(rest_, position)))
      position += text::sequence_bytes(rest_, position);
    if (rest_.substr(position, word.size()) != word) return kNone;
    position += word.size();
    while (position < rest_.size() && text::is_space(text::code_point_at(rest_, position)))
      position += text::sequence_bytes(rest_, position);
    return position;
  }

  /// `{% raw %}...{% endraw %}`; false if the tag at the position is another.
  bool raw_block() {
    size_t end = match_word_tag(position_, "raw");
    if (end == kNone) return false;
    bool strips = rest_.substr(end, 3) == "-%}";
    if (!strips && rest_.substr(end, 2) != "%}") return false;
    int line = line_;
    advance(end + (strips ? 3 : 2) - position_);
    if (strips) skip_space();
    size_t begin = position_;
    int text_line = line_;
    for (size_t tag = rest_.find("{%", begin); tag != kNone; tag = rest_.find("{%", tag + 2)) {
      size_t after = match_word_tag(tag, "endraw");
      if (after == kNone) continue;
      char sign = sign_at(after);
      if (rest_.substr(after + (sign ? 1 : 0), 2) != "%}") continue;
      add_text(strip_before_tag(rest_.substr(begin, tag - begin), begin, sign_at(tag + 2), false), text_line);
      advance(after + (sign ? 3 : 2) - position_);
      after_block(sign);
      return true;
    }
    fail_syntax(line, "missing end of raw directive");
  }

  void tag_tokens(bool is_print) {
    tokens_.push_back({is_print ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, line_, ""});
    std::vector<char> open;
    for (;;) {
      skip_space();
      if (position_ >= rest_.size())
        fail_syntax(line_, is_print ? "unexpected end of template, expected '}}'" : "unexpected end of template, expected '%}'");
      if (open.empty() && end_of_tag(is_print)) return;
      char c = rest_[position_];
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        name();
      } else if (c == '"' || c == '\'') {
        string();
      } else {
        operation(&open);
      }
    }
  }

  bool end_of_tag(bool is_print) {
    std::string_view end = is_print ? "}}" : "%}";
    char sign = sign_at(position_);
    if (sign == '+' && is_print) sign = '\0';
    if (rest_.substr(position_ + (sign ? 1 : 0), 2) != end) return false;
    tokens_.push_back({is_print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, line_, ""});
    advance(sign ? 3 : 2);
    if (!is_print) {
      after_block(sign);
    } else if (sign == '-') {
      skip_space();
    }
    return true;
  }

  void name() {
    size_t end = position_;
    while (end < rest_.size() && is_name_part(rest_[end])) ++end;
    tokens_.push_back({TokenKind::kName, line_, std::string(rest_.substr(position_, end - position_))});
    advance(end - position_);
  }

  /// Digits with single underscores between them from `from` on; the end.
  template <typename IsDigit>
  size_t digits_end(size_t from, IsDigit accepts) const {
    size_t end = from;
    while (end < rest_.size() &&
           (accepts(rest_[end]) || (rest_[end] == '_' && end > from && end + 1 < rest_.size() && accepts(rest_[end + 1])))) {
      ++end;
    }
    return end;
  }

  void number() {
    bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
    size_t end = digits_end(position_, is_digit);
    bool is_float = false;
    if (!after_dot) {
      if (end + 1 < rest_.size() && rest_[end] == '.' && is_digit(rest_[end + 1])) {
        end = digits_end(end + 1, is_digit);
        is_float = true;
      }
      if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < rest_.size() && (rest_[exponent] == '+' || rest_[exponent] == '-')) ++exponent;
        if (exponent < rest_.size() && is_digit(rest_[exponent])) {
          end = digits_end(exponent, is_digit);
          is_float = true;
        }
      }
    }
    int base = 10;
    size_t digits = position_;
    if (!is_float && rest_[position_] == '0' && position_ + 1 < rest_.size()) {
      char prefix = static_cast<char>(rest_[position_ + 1] | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      if (base != 10) {
        digits = position_ + 2;
        end = digits_end(digits, [base](char c) {
          int value = is_digit(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
          return value < base;
        });
      }
    }
    std::string text(rest_.substr(digits, end - digits));
    std::erase(text, '_');
    Token token{is_float ? TokenKind::kFloat : TokenKind::kInteger, line_, text};
    bool zero_first = !is_float && base == 10 && text[0] == '0';
    if (zero_first && text.find_first_not_of('0') != std::string::npos) fail_syntax(line_, "integer '" + text + "' begins with a zero");
    if (is_float) {
      token.number = std::strtod(text.c_str(), nullptr);
    } else {
      int64_t value = 0;
      auto [last, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
      if (status != std::errc() || last != text.data() + text.size()) fail_syntax(line_, "integer '" + text + "' is out of range");
      token.number = value;
    }
    tokens_.push_back(std::move(token));
    advance(end - position_);
  }

  void string() {
    char quote = rest_[position_];
    int line = line_;
    size_t end = position_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail_syntax(line, "a string is not closed");
    tokens_.push_back({TokenKind::kString, line, unescape(rest_.substr(position_ + 1, end - position_ - 1), line)});
    advance(end + 1 - position_);
  }

  /// The escapes of a Python string literal.
  static std::string unescape(std::string_view raw, int line) {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out.push_back(raw[i]);
        continue;
      }
      char c = raw[++i];
      switch (c) {
        case '\n':
          break;
        case '\\':
        case '\'':
        case '"':
          out.push_back(c);
          break;
        case 'a':
          out.push_back('\a');
          break;
        case 'b':
          out.push_back('\b');
          break;
        case 'f':
          out.push_back('\f');
          break;
        case 'n':
          out.push_back('\n');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 't':
          out.push_back('\t');
          break;
        case 'v':
          out.push_back('\v');
          break;
        case 'x':
          text::append_utf8(&out, code_point(raw, &i, 2, line));
          break;
        case 'u':
          text::append_utf8(&out, code_point(raw, &i, 4, line));
          break;
        case 'U':
          text::append_utf8(&out, code_point(raw, &i, 8, line));
          break;
        case 'N':
          fail_syntax(line, "the escape \\N{...} is not supported");
        default:
          if (c >= '0' && c <= '7') {
            char32_t value = 0;
            size_t end = std::min(i + 3, raw.size());
            while (i < end && raw[i] >= '0' && raw[i] <= '7') value = value * 8 + static_cast<char32_t>(raw[i++] - '0');
            --i;
            text::append_utf8(&out, value);
          } else {
            out.push_back('\\');
            out.push_back(c);
          }
      }
    }
    return out;
  }

  static char32_t code_point(std::string_view raw, size_t* i, size_t digits, int line) {
    uint32_t value = 0;
    auto digits_text = raw.substr(*i + 1, digits);
    auto [last, status] = std::from_chars(digits_text.data(), digits_text.data() + digits_text.size(), value, 16);
    if (status != std::errc() || digits_text.size() != digits || last != digits_text.data() + digits || value > 0x10FFFF) {
      fail_syntax(line, "a string has a truncated or invalid escape");
    }
    if (value >= 0xD800 && value < 0xE000) fail_syntax(line, "a string has a surrogate escape");
    *i += digits;
    return value;
  }

  void operation(std::vector<char>* open) {
    for (std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (at(two)) {
        tokens_.push_back({TokenKind::kOperator, line_, std::string(two)});
        return advance(2);
      }
    }
    char c = rest_[position_];
    if (std::string_view("+-*/%~[](){}<>=.:|,;").find(c) == kNone) {
      fail_syntax(line_, std::string("unexpected character '") +
                             std::string(rest_.substr(position_, text::sequence_bytes(rest_, position_))) + "'");
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) fail_syntax(line_, std::string("unexpected '") + c + "'");
      if (open->back() != c) fail_syntax(line_, std::string("unexpected '") + c + "', expected '" + open->back() + "'");
      open->pop_back();
    }
    tokens_.push_back({TokenKind::kOperator, line_, std::string(1, c)});
    advance(1);
  }

  const std::string source_;
  const std::string_view rest_;
  size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!text::is_valid_utf8(source)) fail(ErrorKind::kBadModel, "chat template: the text is not valid UTF-8");
  return Lexer(source).run();
}

}  // namespace minisgl::jinja
