#include "tokenizer/byte_level.h"

#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

constexpr char32_t kLastCharacter = 0x143;  // 68 bytes have no printable character of their own

std::array<char32_t, 256> make_code_points() {
  std::array<char32_t, 256> code_points{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    code_points[byte] = printable ? byte : next++;
  }
  return code_points;
}

}  // namespace

const std::array<std::string, 256>& byte_level_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> result;
    const std::array<char32_t, 256> code_points = make_code_points();
    for (size_t byte = 0; byte < 256; ++byte) append_utf8(result[byte], code_points[byte]);
    return result;
  }();
  return characters;
}

std::string byte_level_encode(std::string_view text) {
  const auto& characters = byte_level_characters();
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (const char c : text) result += characters[static_cast<uint8_t>(c)];
  return result;
}

std::optional<std::string> byte_level_decode(std::string_view text) {
  static const std::array<int16_t, kLastCharacter + 1> bytes = [] {
    std::array<int16_t, kLastCharacter + 1> result;
    result.fill(-1);
    const std::array<char32_t, 256> code_points = make_code_points();
    for (size_t byte = 0; byte < 256; ++byte) result[code_points[byte]] = static_cast<int16_t>(byte);
    return result;
  }();
  std::string result;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = next_code_point(text, offset);
    if (c > kLastCharacter || bytes[c] < 0) return std::nullopt;
    result.push_back(static_cast<char>(bytes[c]));
  }
  return result;
}

}  // namespace minisgl
