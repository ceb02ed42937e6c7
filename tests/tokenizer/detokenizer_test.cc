// When text comes out of the stream; that the whole is right is in component_test.cc and corpus_test.cc.

#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_test_util.h"

namespace minisgl {
namespace {

using nlohmann::json;
using Pieces = std::vector<std::string>;

// Token i is byte i; 256 is special, 257 is "é" in one token.
Tokenizer byte_tokenizer() {
  json vocab = json::object();
  for (size_t i = 0; i < 256; ++i) vocab[byte_level_characters()[i]] = i;
  vocab["\xC3\x83\xC2\xA9"] = 257;
  json file = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}, {"decoder", {{"type", "ByteLevel"}}}};
  file["added_tokens"] = {{{"id", 256}, {"content", "<|end|>"}, {"special", true}}};
  return Tokenizer::from_json(file.dump());
}

// Token i is "<0xi>", then "▁a" (256) and "b" (257); decoded as Llama's.
Tokenizer fallback_tokenizer() {
  json vocab = json::object();
  for (int i = 0; i < 256; ++i) vocab[fmt::format("<0x{:02X}>", i)] = i;
  vocab["\xE2\x96\x81\x61"] = 256;
  vocab["b"] = 257;
  json file = {{"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", json::array()}}}};
  file["decoder"] = json::parse(R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  return Tokenizer::from_json(file.dump());
}

Pieces pieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special = true) {
  Detokenizer stream(tokenizer, skip_special);
  Pieces result;
  for (const int32_t id : ids) result.push_back(stream.push(id));
  result.push_back(stream.finish());
  return result;
}

TEST(DetokenizerTiming, ACharacterIsHeldUntilItsLastByte) {
  EXPECT_EQ(pieces(byte_tokenizer(), {'a', 0xF0, 0x9F, 0x98, 0x80, 'b'}), (Pieces{"a", "", "", "", "\xF0\x9F\x98\x80", "b", ""}));
  EXPECT_EQ(pieces(byte_tokenizer(), {257}), (Pieces{"\xC3\xA9", ""}));
}

TEST(DetokenizerTiming, AnUnfinishedCharacterComesOutAtTheEnd) {
  EXPECT_EQ(pieces(byte_tokenizer(), {0xE2, 0x82}), (Pieces{"", "", "\uFFFD"}));
  EXPECT_EQ(pieces(byte_tokenizer(), {0xE2, 'a'}), (Pieces{"", "\uFFFDa", ""}));
  EXPECT_EQ(pieces(byte_tokenizer(), {0xEF, 0xBF, 0xBD}), (Pieces{"", "", "\uFFFD", ""}));  // the model's own U+FFFD
}

TEST(DetokenizerTiming, SpecialTokensAreHiddenUnlessAskedFor) {
  EXPECT_EQ(pieces(byte_tokenizer(), {'a', 256, 'b'}), (Pieces{"a", "", "b", ""}));
  EXPECT_EQ(pieces(byte_tokenizer(), {'a', 256, 'b'}, false), (Pieces{"a", "<|end|>", "b", ""}));
  // A hidden token is as if it had not been there.
  EXPECT_EQ(pieces(byte_tokenizer(), {0xC3, 256, 0xA9}), (Pieces{"", "", "\xC3\xA9", ""}));
}

TEST(DetokenizerTiming, ByteTokensAreHeldUntilTheRunEnds) {
  EXPECT_EQ(pieces(fallback_tokenizer(), {256, 0xC3, 0xA9, 0x0A, 257}), (Pieces{"a", "", "", "", "\xC3\xA9\nb", ""}));
  EXPECT_EQ(pieces(fallback_tokenizer(), {257, 0x0A}), (Pieces{"b", "", "\n"}));
  // One bad byte spoils the run: a U+FFFD for each of its bytes.
  EXPECT_EQ(pieces(fallback_tokenizer(), {0xC3, 0xA9, 0xFF, 257}), (Pieces{"", "", "", "\uFFFD\uFFFD\uFFFDb", ""}));
}

TEST(DetokenizerTiming, OnlyTheFirstSpaceOfTheTextIsStripped) {
  EXPECT_EQ(pieces(fallback_tokenizer(), {256, 256}), (Pieces{"a", " a", ""}));
  EXPECT_EQ(pieces(fallback_tokenizer(), {0x20, 0x20, 257}), (Pieces{"", "", " b", ""}));
}

TEST(DetokenizerTiming, TokenBytesKeepTheirSpace) {
  const Tokenizer tokenizer = fallback_tokenizer();
  EXPECT_EQ(tokenizer.token_bytes(256), " a");
  EXPECT_EQ(tokenizer.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(byte_tokenizer().token_bytes(256), "<|end|>");
}

TEST(DetokenizerTiming, IdsWithoutATokenAddNothing) {
  EXPECT_EQ(pieces(byte_tokenizer(), {'a', -1, 258, 2'000'000'000, 'b'}), (Pieces{"a", "", "", "", "b", ""}));
}

}  // namespace
}  // namespace minisgl
