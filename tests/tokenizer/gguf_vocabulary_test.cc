#include <gtest/gtest.h>

#include "checkpoint/gguf.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_test_util.h"

namespace minisgl {
namespace {

using nlohmann::json;

GgufVocabulary read_vocabulary(const GgufFile& file) {
  auto id = [&](const char* key) -> std::optional<int32_t> {
    const auto value = file.integer(key);
    return value ? std::optional<int32_t>(static_cast<int32_t>(*value)) : std::nullopt;
  };
  GgufVocabulary v;
  v.model = file.string("tokenizer.ggml.model").value();
  v.pre = file.string("tokenizer.ggml.pre").value_or(v.pre);
  v.tokens = file.strings("tokenizer.ggml.tokens").value();
  const std::vector<int64_t> types = file.integers("tokenizer.ggml.token_type").value();
  v.token_types.assign(types.begin(), types.end());
  v.merges = file.strings("tokenizer.ggml.merges").value();
  v.add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(false);
  v.add_eos = file.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  v.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(false);
  v.bos_id = id("tokenizer.ggml.bos_token_id");
  v.eos_id = id("tokenizer.ggml.eos_token_id");
  v.unk_id = id("tokenizer.ggml.unknown_token_id");
  return v;
}

TEST(GgufVocabulary, SmolLm2EncodesAndDecodesAsExpected) {
  const char* model = std::getenv("MINISGL_TEST_SMOLLM2");
  if (test_corpus().empty()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  if (model == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_SMOLLM2 is not set";
  const Tokenizer tokenizer = Tokenizer::from_gguf(read_vocabulary(GgufFile(model)));
  const json expected = read_json(test_corpus() / "smollm2_expected.json");
  ASSERT_EQ(expected.at("tokenizer").size(), 40u);
  for (const json& c : expected.at("tokenizer")) {
    const std::string text = c.at("text");
    SCOPED_TRACE(text.substr(0, 200));
    const std::vector<int32_t> ids = c.at("ids");
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = false}), c.value("ids_plain", ids));
    EXPECT_EQ(tokenizer.decode(ids, false), c.at("decoded").get<std::string>());
    EXPECT_EQ(stream_decode(tokenizer, ids, false), c.at("decoded").get<std::string>());
  }
}

// A byte-level vocabulary with every byte, a few merges, a control token and a user-defined one.
GgufVocabulary small_vocabulary(const std::string& pre) {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = pre;
  for (const std::string& character : byte_level_characters()) v.tokens.push_back(character);
  v.token_types.assign(256, 1);
  auto add = [&](const std::string& token, int32_t type) {
    v.tokens.push_back(token);
    v.token_types.push_back(type);
  };
  add("12", 1);
  add("123", 1);
  add("\xC3\x83\xC2\xA9", 1);  // the two bytes of é
  add("<|end|>", 3);
  add("<tool>", 4);
  v.merges = {"1 2", "12 3", "\xC3\x83 \xC2\xA9"};
  v.bos_id = 259;
  return v;
}

std::vector<int32_t> plain(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.add_special_tokens = false});
}

TEST(GgufVocabulary, PresetsSplitDigitsAsTheirModelsDo) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(plain(Tokenizer::from_gguf(small_vocabulary("gpt-2")), "123"), (Ids{257}));
  EXPECT_EQ(plain(Tokenizer::from_gguf(small_vocabulary("llama-bpe")), "1231"), (Ids{257, '1'}));
  EXPECT_EQ(plain(Tokenizer::from_gguf(small_vocabulary("qwen2")), "123"), (Ids{'1', '2', '3'}));
  EXPECT_EQ(plain(Tokenizer::from_gguf(small_vocabulary("smollm")), "123"), (Ids{'1', '2', '3'}));
}

TEST(GgufVocabulary, Qwen2ComposesCharacters) {
  const std::string decomposed = "e\xCC\x81";
  EXPECT_EQ(plain(Tokenizer::from_gguf(small_vocabulary("qwen2")), decomposed), (std::vector<int32_t>{258}));
  EXPECT_EQ(plain(Tokenizer::from_gguf(small_vocabulary("smollm")), decomposed), (std::vector<int32_t>{'e', 0xCC, 0x81}));
}

TEST(GgufVocabulary, ControlTokensAreSpecialAndUserDefinedOnesAreNot) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(small_vocabulary("gpt-2"));
  EXPECT_TRUE(tokenizer.is_special(259));
  EXPECT_FALSE(tokenizer.is_special(260));
  EXPECT_EQ(tokenizer.encode("<tool><|end|>"), (std::vector<int32_t>{260, 259}));
  EXPECT_EQ(tokenizer.encode("<tool><|end|>", {.parse_special = false}), (std::vector<int32_t>{260, '<', '|', 'e', 'n', 'd', '|', '>'}));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{260, 259}), "<tool>");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{260, 259}, false), "<tool><|end|>");
}

TEST(GgufVocabulary, AddsBosWhenTheFileSaysSo) {
  GgufVocabulary vocabulary = small_vocabulary("gpt-2");
  vocabulary.add_bos = true;
  const Tokenizer tokenizer = Tokenizer::from_gguf(vocabulary);
  EXPECT_EQ(tokenizer.encode("1"), (std::vector<int32_t>{259, '1'}));
  EXPECT_EQ(plain(tokenizer, "1"), (std::vector<int32_t>{'1'}));
}

TEST(GgufVocabulary, RefusesWhatItCannotDo) {
  auto message = [](auto change) -> std::string {
    GgufVocabulary vocabulary = small_vocabulary("gpt-2");
    change(vocabulary);
    try {
      Tokenizer::from_gguf(vocabulary);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  using V = GgufVocabulary;
  EXPECT_EQ(message([](V& v) { v.model = "llama"; }), "tokenizer.ggml.model is 'llama'; supported: gpt2 (byte-level BPE)");
  EXPECT_EQ(message([](V& v) { v.pre = "klingon"; }),
            "tokenizer.ggml.pre is 'klingon'; supported: default, gpt-2, smollm, starcoder, qwen2, llama-bpe");
  EXPECT_EQ(message([](V& v) { v.token_types.pop_back(); }), "tokenizer.ggml.token_type has 260 entries for 261 tokens");
  EXPECT_EQ(message([](V& v) { v.bos_id = 261; }), "tokenizer.ggml.bos_token_id is 261; the vocabulary has 261 tokens");
  EXPECT_EQ(message([](V& v) {
              v.tokens[7] = "12";
              v.merges.clear();
            }),
            "tokenizer.ggml.tokens[256] '12' is also token 7");
  EXPECT_EQ(message([](V& v) { v.merges[0] = "12"; }), "tokenizer.ggml.merges[0] is '12'; expected two tokens with one space between");
  EXPECT_EQ(message([](V& v) { v.merges[0] = "1 3"; }),
            "tokenizer.ggml.merges: merge 0 ('1' '3') needs the token '13', which is not in the vocabulary");
  EXPECT_EQ(message([](V& v) { v.add_eos = true; }), "tokenizer.ggml.add_eos_token is true, but the id of that token is missing");
  EXPECT_EQ(message([](V& v) { v.token_types[3] = 9; }), "tokenizer.ggml.token_type[3] is 9; allowed: 1 to 6");
  EXPECT_EQ(message([](V& v) { v.tokens[3] = "\xFF"; }), "tokenizer.ggml.tokens[3] is not valid UTF-8");
}

}  // namespace
}  // namespace minisgl
