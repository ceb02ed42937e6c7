#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

// A search is one pass over the text with little backtracking in every published tokenizer. The limit stops a hostile pattern in about a
// second.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr size_t kJitStackBytes = size_t{64} << 20;
constexpr size_t kMaxPatternBytes = 65'536;

constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// Where PCRE2 and Oniguruma give an escape different meanings, spells out Oniguruma's: \s is the White_Space property (PCRE2 adds
// U+180E), \w includes marks and connectors, \h is a hexadecimal digit.
std::string translate(const std::string& pattern, const std::string& where) {
  std::string result;
  bool in_class = false;
  size_t class_start = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      switch (escaped) {
        case 's':
          result += "\\p{White_Space}";
          break;
        case 'S':
          result += "\\P{White_Space}";
          break;
        case 'h':
          result += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
          break;
        case 'w':
          if (!in_class) result += '[';
          result += kWordClass;
          if (!in_class) result += ']';
          break;
        case 'W':
          if (in_class) fail(ErrorKind::kNotSupported, "{}: \\W inside a character class is not supported: '{}'", where, pattern);
          result += "[^";
          result += kWordClass;
          result += ']';
          break;
        case 'H':
          fail(ErrorKind::kNotSupported, "{}: \\H is not supported: '{}'", where, pattern);
        default:
          result += {c, escaped};
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      class_start = i + 1;
      if (class_start < pattern.size() && pattern[class_start] == '^') ++class_start;
    } else if (in_class && c == ']' && i > class_start) {
      in_class = false;
    } else if (in_class && c == '[') {
      const bool posix = i + 1 < pattern.size() && pattern[i + 1] == ':';
      if (!posix) fail(ErrorKind::kNotSupported, "{}: a character class inside another is not supported: '{}'", where, pattern);
      const size_t end = pattern.find(":]", i + 2);
      if (end != std::string::npos) {
        result.append(pattern, i, end + 2 - i);
        i = end + 1;
        continue;
      }
    } else if (in_class && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      fail(ErrorKind::kNotSupported, "{}: the intersection of character classes (&&) is not supported: '{}'", where, pattern);
    }
    result += c;
  }
  return result;
}

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

Regex::Regex(const std::string& pattern, std::string where) : where_(std::move(where)) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(ErrorKind::kBadModel, "{}: the regular expression has {} bytes; at most {} are allowed", where_, pattern.size(), kMaxPatternBytes);
  }
  const std::string translated = translate(pattern, where_);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(pcre2_compile_context_create(nullptr),
                                                                                        pcre2_compile_context_free);
  MINISGL_CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &error_offset, context.get());
  if (code == nullptr) {
    fail(ErrorKind::kBadModel, "{}: invalid regular expression '{}': {} at offset {}", where_, pattern, pcre2_message(error), error_offset);
  }
  code_ = std::shared_ptr<const void>(code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  // Without a JIT on this machine pcre2_match() interprets the pattern: slower, with the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

struct RegexSearch::Scratch {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

RegexSearch::RegexSearch(const Regex& regex) : regex_(regex), scratch_(std::make_unique<Scratch>()) {
  scratch_->data = pcre2_match_data_create_from_pattern(static_cast<const pcre2_code*>(regex.code_.get()), nullptr);
  scratch_->context = pcre2_match_context_create(nullptr);
  MINISGL_CHECK(scratch_->data != nullptr && scratch_->context != nullptr, "out of memory");
  pcre2_set_match_limit(scratch_->context, kMatchLimit);
}

RegexSearch::~RegexSearch() = default;

void RegexSearch::start(std::string_view subject) {
  subject_ = subject;
  offset_ = 0;
  last_end_ = std::string_view::npos;
}

std::optional<RegexSearch::Match> RegexSearch::next() {
  const auto* code = static_cast<const pcre2_code*>(regex_.code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(subject_.data());
  while (offset_ <= subject_.size()) {
    auto search = [&] {
      return pcre2_match(code, subject, subject_.size(), offset_, PCRE2_NO_UTF_CHECK, scratch_->data, scratch_->context);
    };
    int result = search();
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && scratch_->stack == nullptr) {
      scratch_->stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
      pcre2_jit_stack_assign(scratch_->context, nullptr, scratch_->stack);
      result = search();
    }
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      fail(ErrorKind::kInvalidRequest, "{}: the regular expression gave up at byte {} of a text of {} bytes: {}", regex_.where_, offset_,
           subject_.size(), pcre2_message(result));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch_->data);
    // \K inside a lookahead can make a match end before it starts; such a pattern splits nothing.
    const Match match{ends[0], ends[1]};
    if (match.end > match.begin) {
      offset_ = match.end;
    } else {
      offset_ = match.begin;
      if (offset_ < subject_.size()) {
        next_code_point(subject_, offset_);
      } else {
        ++offset_;
      }
      if (match.begin == last_end_ || match.end < match.begin) continue;
    }
    last_end_ = match.end;
    return match;
  }
  offset_ = subject_.size() + 1;
  return std::nullopt;
}

}  // namespace minisgl
