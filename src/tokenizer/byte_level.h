#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace minisgl {

/// GPT-2's spelling of bytes as printable characters: a byte that is a printable Latin-1 character stands for itself, the others are
/// U+0100, U+0101, ... in ascending order.
const std::array<std::string, 256>& byte_level_characters();

/// `text` with each byte replaced by its character.
std::string byte_level_encode(std::string_view text);

/// The bytes that a text of such characters (valid UTF-8) spells; nothing if another character is in it.
std::optional<std::string> byte_level_decode(std::string_view text);

}  // namespace minisgl
