// Every component and option of tokenizer.json against Hugging Face `tokenizers`: tests/data/tokenizer/cases.json, which
// tests/tools/make_tokenizer_cases.py writes. MINISGL_TEST_TOKENIZER_CASES names another such file, for a differential fuzz.

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/tokenizer_test_util.h"

namespace minisgl {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

struct Case {
  std::string name;
  Tokenizer tokenizer;
  json expected;
};

std::vector<Case> read_cases(const std::filesystem::path& path) {
  const json file = read_json(path);
  std::vector<Case> cases;
  for (const json& entry : file.at("tokenizers")) {
    const std::string name = entry.at("name");
    if (entry.contains("file")) {
      cases.push_back({name, Tokenizer::load_tokenizer_json(entry.at("file").get<std::string>()), entry});
      continue;
    }
    json whole = entry.at("json");
    json model = file.at("models").at(whole.at("model").at("base").get<std::string>());
    whole.at("model").erase("base");
    model.update(whole.at("model"));
    whole["model"] = model;
    cases.push_back({name, Tokenizer::from_json(whole.dump(), name), entry});
  }
  return cases;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> result = [] {
    const char* path = std::getenv("MINISGL_TEST_TOKENIZER_CASES");
    return read_cases(path != nullptr ? path : test_data() / "tokenizer/cases.json");
  }();
  return result;
}

TEST(TokenizerComponents, EncodeAsHuggingFace) {
  ASSERT_GT(cases().size(), 50u);
  for (const Case& c : cases()) {
    for (const json& e : c.expected.at("encode")) {
      SCOPED_TRACE(c.name + ": " + e.at("text").dump(-1, ' ', true));
      const std::string text = e.at("text");
      const Ids ids = e.at("ids");
      EXPECT_EQ(c.tokenizer.encode(text, {.add_special_tokens = false}), ids);
      EXPECT_EQ(c.tokenizer.encode(text), e.value("with_special", ids));
      EXPECT_EQ(c.tokenizer.encode(text, {.add_special_tokens = false, .parse_special = false}), e.value("special_as_text", ids));
    }
  }
}

TEST(TokenizerComponents, DecodeAsHuggingFace) {
  for (const Case& c : cases()) {
    for (const json& e : c.expected.at("decode")) {
      SCOPED_TRACE(c.name + ": " + e.at("ids").dump());
      const Ids ids = e.at("ids");
      const std::string shown = e.at("shown");
      EXPECT_EQ(c.tokenizer.decode(ids, false), shown);
      EXPECT_EQ(c.tokenizer.decode(ids, true), e.value("hidden", shown));
    }
  }
}

// Long texts take other paths than short ones (heap, cache of words, cuts): the words of a text must come out the same in both.
TEST(TokenizerComponents, LongTextsEncodeAsTheirRepeatedPart) {
  for (const Case& c : cases()) {
    if (c.expected.contains("file")) continue;
    const std::string unit = "<x>the theory of the others, hello hello 123 na\xC3\xAFve!";
    std::string text;
    Ids expected;
    const Ids once = c.tokenizer.encode(unit, {.add_special_tokens = false});
    // Only the first part may have a prepended space: with "first" schemes compare from the second on.
    const Ids twice = c.tokenizer.encode(unit + unit, {.add_special_tokens = false});
    const Ids later(twice.begin() + static_cast<std::ptrdiff_t>(once.size()), twice.end());
    expected = once;
    text = unit;
    for (int i = 0; i < 400; ++i) {
      text += unit;
      expected.insert(expected.end(), later.begin(), later.end());
    }
    SCOPED_TRACE(c.name);
    EXPECT_EQ(c.tokenizer.encode(text, {.add_special_tokens = false}), expected);
  }
}

TEST(Detokenizer, PiecesConcatenateToTheDecodedTextForAnyIds) {
  std::mt19937 random(7);
  for (const Case& c : cases()) {
    const int32_t limit = c.tokenizer.vocab_size();
    for (int round = 0; round < 40; ++round) {
      // Tokens of all kinds, and ids that have none.
      Ids ids(random() % 24);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(limit + 3)) - 1;
      for (const bool skip : {false, true}) {
        SCOPED_TRACE(c.name + ": " + json(ids).dump());
        EXPECT_EQ(stream_decode(c.tokenizer, ids, skip), c.tokenizer.decode(ids, skip));
      }
    }
  }
}

TEST(Detokenizer, ACopyContinuesTheStreamFromWhereItWasTaken) {
  std::mt19937 random(11);
  for (const Case& c : cases()) {
    Ids ids(16);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(c.tokenizer.vocab_size()));
    const std::string whole = c.tokenizer.decode(ids, false);
    Detokenizer stream(c.tokenizer, false);
    std::string text;
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      Detokenizer fork = stream;
      std::string forked = text;
      for (size_t i = cut; i < ids.size(); ++i) fork.push(ids[i], forked);
      fork.finish(forked);
      EXPECT_EQ(forked, whole) << c.name << " cut at " << cut;
      if (cut < ids.size()) stream.push(ids[cut], text);
    }
  }
}

TEST(Detokenizer, FinishStartsANewStream) {
  for (const Case& c : cases()) {
    Ids ids;
    for (int32_t id = 0; id < std::min(c.tokenizer.vocab_size(), 300); id += 7) ids.push_back(id);
    Detokenizer stream(c.tokenizer, false);
    for (int i = 0; i < 2; ++i) {
      std::string text;
      for (const int32_t id : ids) stream.push(id, text);
      stream.finish(text);
      EXPECT_EQ(text, c.tokenizer.decode(ids, false)) << c.name;
    }
  }
}

// With a decoder that only joins bytes, the bytes of the tokens are the text.
TEST(Detokenizer, TokenBytesAreWhatATokenAdds) {
  for (const Case& c : cases()) {
    for (const json& e : c.expected.at("encode")) {
      const Ids ids = e.at("ids");
      if (c.name != "byte_level" && c.name != "digits_then_bytes") continue;
      std::string bytes;
      for (const int32_t id : ids) bytes += c.tokenizer.token_bytes(id);
      EXPECT_EQ(bytes, c.tokenizer.decode(ids, false));
    }
  }
  EXPECT_EQ(cases().front().tokenizer.token_bytes(1'000'000), "");
}

}  // namespace
}  // namespace minisgl
