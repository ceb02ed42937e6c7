#include "tokenizer/utf8.h"

#include <utf8proc.h>

#include <cstring>

namespace minisgl {
namespace {

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace

Utf8Sequence classify_utf8(std::string_view bytes) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Status::kComplete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Status::kInvalid, 1};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (uint32_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Status::kTruncated, i};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {Utf8Status::kInvalid, i};
  }
  return {Utf8Status::kComplete, size};
}

size_t find_invalid_utf8(std::string_view bytes) {
  size_t offset = 0;
  while (offset < bytes.size()) {
    if (bytes.size() - offset >= 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + offset, 8);
      if ((word & 0x8080808080808080u) == 0) {
        offset += 8;
        continue;
      }
    }
    const Utf8Sequence sequence = classify_utf8(bytes.substr(offset));
    if (sequence.status != Utf8Status::kComplete) return offset;
    offset += sequence.size_bytes;
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, size_t& offset) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[offset + i])); };
  const char32_t lead = byte(0);
  char32_t code_point = lead;
  size_t size = 1;
  if (lead >= 0xF0) {
    code_point = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    size = 4;
  } else if (lead >= 0xE0) {
    code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    size = 3;
  } else if (lead >= 0x80) {
    code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    size = 2;
  }
  offset += size;
  return code_point;
}

size_t previous_character(std::string_view text, size_t offset) {
  do {
    --offset;
  } while ((static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80);
  return offset;
}

void append_utf8(std::string& text, char32_t code_point) {
  auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

void drain_utf8(std::string& bytes, std::string& text) {
  size_t offset = 0;
  while (offset < bytes.size()) {
    const Utf8Sequence sequence = classify_utf8(std::string_view(bytes).substr(offset));
    if (sequence.status == Utf8Status::kTruncated) break;
    if (sequence.status == Utf8Status::kComplete) {
      text.append(bytes, offset, sequence.size_bytes);
    } else {
      text.append(kReplacementCharacter);
    }
    offset += sequence.size_bytes;
  }
  bytes.erase(0, offset);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  if (c < 0x300) return false;
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  if (c >= 0x24B6 && c <= 0x24E9) return true;  // Other_Alphabetic outside L, M and Nl: circled letters
  if (c >= 0x1F130 && c <= 0x1F189 && !(c >= 0x1F14A && c <= 0x1F14F) && !(c >= 0x1F16A && c <= 0x1F16F)) return true;  // squared letters
  const utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME) ||
         k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC;
}

}  // namespace minisgl
