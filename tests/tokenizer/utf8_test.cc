#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_test_util.h"

namespace minisgl {
namespace {

std::string lossy(std::string bytes) {
  std::string text;
  drain_utf8(bytes, text);
  if (!bytes.empty()) text += kReplacementCharacter;
  return text;
}

// The table of the Unicode standard, section 3.9, and what follows from it.
TEST(Utf8, EachIllFormedSubpartBecomesOneReplacementCharacter) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"), "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");    // overlong
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");    // surrogates
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");  // beyond U+10FFFF
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");                    // truncated
  EXPECT_EQ(lossy("\xF0\x9F\x98"), r);
  EXPECT_EQ(lossy("\xEF\xBF\xBD"), r);
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    size_t offset = 0;
    ASSERT_EQ(next_code_point(text, offset), c);
    ASSERT_EQ(offset, text.size());
    ASSERT_EQ(find_invalid_utf8(text), std::string::npos);
    ASSERT_EQ(previous_character("x" + text, text.size() + 1), 1u);
  }
}

TEST(Utf8, DrainingInPiecesEqualsDrainingAtOnce) {
  std::mt19937 random(5);
  const std::string bytes = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF\x80";
  for (int round = 0; round < 5000; ++round) {
    std::string all;
    std::string held;
    std::string text;
    for (uint32_t n = random() % 12; n > 0; --n) {
      const char byte = bytes[random() % bytes.size()];
      all += byte;
      held += byte;
      drain_utf8(held, text);
      ASSERT_LE(held.size(), 3u);
    }
    if (!held.empty()) text += kReplacementCharacter;
    ASSERT_EQ(text, lossy(all));
    ASSERT_EQ(find_invalid_utf8(text), std::string::npos);
  }
}

TEST(ByteLevel, EveryByteHasACharacterOfItsOwn) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(byte_level_decode(byte_level_encode(one)), one);
  }
  EXPECT_EQ(byte_level_encode(" a\n"),
            "\xC4\xA0"
            "a\xC4\x8A");
  EXPECT_EQ(byte_level_decode("\xE6\x97\xA5"), std::nullopt);
  EXPECT_EQ(byte_level_decode(" "), std::nullopt);
}

}  // namespace
}  // namespace minisgl
