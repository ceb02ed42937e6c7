#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl {

/// The state of the UTF-8 sequence at the start of some bytes.
enum class Utf8Status {
  kComplete,   ///< a whole character
  kInvalid,    ///< bytes that no continuation can make a character
  kTruncated,  ///< the beginning of a character, cut off by the end of the bytes
};

struct Utf8Sequence {
  Utf8Status status;
  /// Bytes of the character, or of the maximal subpart of an ill-formed one (Unicode 15, section 3.9): what one U+FFFD replaces.
  uint32_t size_bytes;
};

/// Classifies the first sequence of `bytes`, which must not be empty.
Utf8Sequence classify_utf8(std::string_view bytes);

/// The offset of the first byte that is not part of a valid character; npos if all of `bytes` is valid UTF-8.
size_t find_invalid_utf8(std::string_view bytes);

/// The code point at `offset` of valid UTF-8; moves `offset` behind it.
char32_t next_code_point(std::string_view text, size_t& offset);

/// The offset of the character that ends right before `offset` > 0 of valid UTF-8.
size_t previous_character(std::string_view text, size_t offset);

void append_utf8(std::string& text, char32_t code_point);

/// Moves the complete characters at the front of `bytes` to the end of `text`, each ill-formed subpart as one U+FFFD; a truncated
/// character at the end stays in `bytes`.
void drain_utf8(std::string& bytes, std::string& text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// Unicode's White_Space property.
bool is_white_space(char32_t code_point);
/// General category N: decimal digits, letter numbers, other numbers.
bool is_numeric(char32_t code_point);
/// General category P, or ASCII punctuation.
bool is_punctuation(char32_t code_point);
/// A combining mark, general category M.
bool is_mark(char32_t code_point);
/// A word character as regular expressions define `\w` (UTS 18, annex C).
bool is_word(char32_t code_point);

}  // namespace minisgl
