// Real tokenizers against what Hugging Face `tokenizers` computes from the same files.

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/tokenizer_test_util.h"

namespace minisgl {
namespace {

using nlohmann::json;

void expect_equal(const Tokenizer& tokenizer, const json& cases) {
  ASSERT_GT(cases.size(), 0u);
  for (const json& c : cases) {
    const std::string text = c.at("text");
    SCOPED_TRACE(text.substr(0, 200));
    const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special_tokens = false});
    EXPECT_EQ(ids, c.at("ids").get<std::vector<int32_t>>());
    if (c.contains("ids_with_special")) {
      EXPECT_EQ(tokenizer.encode(text), c.at("ids_with_special").get<std::vector<int32_t>>());
    }
    const std::string decoded = c.at("decoded");
    // The expectations were decoded with special tokens shown.
    EXPECT_EQ(tokenizer.decode(ids, false), decoded);
    EXPECT_EQ(stream_decode(tokenizer, ids, false), decoded);
  }
}

struct Real {
  const char* name;
  const char* tokenizer;
  const char* expected;
  const char* key;  // of the expectations in that file
};

class RealTokenizer : public testing::TestWithParam<Real> {};

TEST_P(RealTokenizer, EncodesAndDecodesAsHuggingFace) {
  if (test_corpus().empty()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  const Tokenizer tokenizer = Tokenizer::load_tokenizer_json(test_corpus() / GetParam().tokenizer);
  json expected = read_json(test_corpus() / GetParam().expected);
  if (*GetParam().key != '\0') expected = expected.at(GetParam().key);
  expect_equal(tokenizer, expected.at("encode"));
}

TEST_P(RealTokenizer, StreamsAnyIdsAsItDecodesThem) {
  if (test_corpus().empty()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  const Tokenizer tokenizer = Tokenizer::load_tokenizer_json(test_corpus() / GetParam().tokenizer);
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    // Half of the ids from the first thousand, where the byte tokens are.
    std::vector<int32_t> ids(random() % 20);
    for (int32_t& id : ids)
      id = static_cast<int32_t>(random() % (random() % 2 == 0 ? 1000u : static_cast<uint32_t>(tokenizer.vocab_size() + 100)));
    const bool skip = round % 2 == 0;
    ASSERT_EQ(stream_decode(tokenizer, ids, skip), tokenizer.decode(ids, skip)) << json(ids).dump();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Corpus, RealTokenizer,
    testing::Values(Real{"qwen3", "tokenizers/qwen3/tokenizer.json", "tokenizer_expected.json", "qwen3"},
                    Real{"llama3_1", "tokenizers/llama3_1/tokenizer.json", "tokenizer_expected.json", "llama3_1"},
                    Real{"mistral_v3", "tokenizers/mistral_v3/tokenizer.json", "tokenizers/mistral_v3/expected.json", ""},
                    Real{"llama2_style", "tokenizers/llama2_style/tokenizer.json", "tokenizers/llama2_style/expected.json", ""}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace minisgl
