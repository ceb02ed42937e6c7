#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

bool is_normalized(const Normalizer::UnicodeForm& form, std::string_view text) {
  // Every form leaves ASCII as it is; NFC leaves everything below U+0300, whose first byte is 0xCC.
  const uint8_t limit = form.compose && !form.compatibility ? 0xCC : 0x80;
  return std::all_of(text.begin(), text.end(), [limit](char c) {
    const uint8_t byte = static_cast<uint8_t>(c);
    return byte < limit;
  });
}

void apply_step(const Normalizer::UnicodeForm& form, std::string& text) {
  if (is_normalized(form, text)) return;
  const int options = UTF8PROC_STABLE | (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (form.compatibility ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
  if (size < 0) fail(ErrorKind::kInternal, "Unicode normalization of {} bytes failed: {}", text.size(), utf8proc_errmsg(size));
  text.assign(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

void apply_step(const Normalizer::Lowercase&, std::string& text) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = next_code_point(text, offset);
    if (c == 0x130) {
      result += "i\xCC\x87";  // the one character whose full lower case is two characters
    } else {
      append_utf8(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  text = std::move(result);
}

void apply_step(const Normalizer::Strip& strip, std::string& text) {
  size_t begin = 0;
  size_t end = text.size();
  while (strip.left && begin < end) {
    size_t next = begin;
    if (!is_white_space(next_code_point(text, next))) break;
    begin = next;
  }
  while (strip.right && end > begin) {
    const size_t previous = previous_character(text, end);
    size_t offset = previous;
    if (!is_white_space(next_code_point(text, offset))) break;
    end = previous;
  }
  text = text.substr(begin, end - begin);
}

void apply_step(const Normalizer::StripAccents&, std::string& text) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    if (!is_mark(next_code_point(text, offset))) result.append(text, begin, offset - begin);
  }
  text = std::move(result);
}

void apply_step(const Replacement& replacement, std::string& text) {
  text = replacement.apply(text);
}

void apply_step(const Normalizer::Prepend& prepend, std::string& text) {
  if (!text.empty()) text.insert(0, prepend.text);
}

void apply_step(const Normalizer::ByteLevel&, std::string& text) {
  text = byte_level_encode(text);
}

}  // namespace

std::string Replacement::apply(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  size_t copied = 0;
  auto replace = [&](size_t begin, size_t end) {
    result.append(text, copied, begin - copied);
    result += content;
    copied = end;
  };
  if (const auto* literal = std::get_if<std::string>(&pattern)) {
    for (size_t at = text.find(*literal); at != std::string_view::npos; at = text.find(*literal, at + literal->size())) {
      replace(at, at + literal->size());
    }
  } else {
    RegexSearch search(std::get<Regex>(pattern));
    search.start(text);
    while (const auto match = search.next()) replace(match->begin, match->end);
  }
  result.append(text, copied);
  return result;
}

void Normalizer::apply(std::string& text) const {
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { apply_step(s, text); }, step);
  }
}

}  // namespace minisgl
