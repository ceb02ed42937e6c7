// Malformed and unsupported files: each is one line of error that names the place, never a crash or a huge allocation.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_test_util.h"

namespace minisgl {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json base() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": [["a", "b"]]}})");
}

std::string load_error(const std::string& text) {
  try {
    Tokenizer::from_json(text, "t.json");
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::kBadModel || error.kind() == ErrorKind::kNotSupported) << error.what();
    return error.what();
  }
  return "accepted";
}

// The error of the base file after a change.
std::string error_after(const std::function<void(json&)>& change) {
  json file = base();
  change(file);
  return load_error(file.dump());
}

TEST(TokenizerJson, TheBaseOfTheseTestsLoads) {
  const Tokenizer tokenizer = Tokenizer::from_json(base().dump());
  EXPECT_EQ(tokenizer.encode("ab<s>c"), (Ids{2, 4, 3}));
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.id_to_token(4), "<s>");
  EXPECT_EQ(tokenizer.id_to_token(5), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.token_to_id("ab"), 2);
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 4);
  EXPECT_EQ(tokenizer.token_to_id("zz"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(4));
  EXPECT_FALSE(tokenizer.is_special(2));
  ASSERT_EQ(tokenizer.added_tokens().size(), 1u);
  EXPECT_EQ(tokenizer.added_tokens()[0].content, "<s>");
}

TEST(TokenizerJson, MalformedJsonIsRefusedWithThePlace) {
  EXPECT_EQ(load_error("").substr(0, 31), "t.json: malformed JSON at byte ");
  EXPECT_EQ(load_error("{\"model\": {\"vocab\"").substr(0, 31), "t.json: malformed JSON at byte ");
  EXPECT_EQ(load_error("\xFF\xFE").substr(0, 31), "t.json: malformed JSON at byte ");
  EXPECT_EQ(load_error("[]"), "t.json: expected an object, found array");
  EXPECT_EQ(load_error("3"), "t.json: expected an object, found number");
  EXPECT_EQ(load_error("{}"), "t.json: model is missing");
  EXPECT_EQ(load_error(R"({"model": {}, "model": {}})"), "t.json: the key 'model' appears twice");
  EXPECT_EQ(load_error(std::string(100'000, '[')), "t.json: nested deeper than 64 levels");
  std::string nested = R"({"model": {"type": "BPE"}, "normalizer": )";
  for (int i = 0; i < 100'000; ++i) nested += R"({"type": "Sequence", "normalizers": [)";
  EXPECT_EQ(load_error(nested), "t.json: nested deeper than 64 levels");
}

TEST(TokenizerJson, BadVocabulariesAreRefused) {
  auto vocab = [](const char* text) { return load_error(std::string(R"({"model": {"merges": [], "vocab": )") + text + "}}"); };
  EXPECT_EQ(vocab(R"({"a": -1})"), "t.json: model.vocab: token 'a' has id -1; allowed: 0 to 4194303");
  EXPECT_EQ(vocab(R"({"a": 4000000000})"), "t.json: model.vocab: token 'a' has id 4000000000; allowed: 0 to 4194303");
  EXPECT_EQ(vocab(R"({"a": 18446744073709551615})"), "t.json: model.vocab: the id of token 'a' is not a whole number");
  EXPECT_EQ(vocab(R"({"a": 1.5})"), "t.json: model.vocab: the id of token 'a' is not a whole number");
  EXPECT_EQ(vocab(R"({"a": {}})"), "t.json: model.vocab: the id of token 'a' is not a whole number");
  EXPECT_EQ(vocab(R"({"a": [1]})"), "t.json: model.vocab: the id of token 'a' is not a whole number");
  EXPECT_EQ(vocab(R"({"a": 0, "a": 1})"), "t.json: model.vocab: token 'a' appears twice");
  EXPECT_EQ(vocab(R"({"a": 0, "b": 0})"), "t.json: model.vocab: tokens 'a' and 'b' have the same id 0");
  EXPECT_EQ(vocab("[]"), "t.json: model.vocab is missing or not an object");
  EXPECT_EQ(error_after([](json& f) { f["model"].erase("vocab"); }), "t.json: model.vocab is missing or not an object");
}

TEST(TokenizerJson, BadMergesAreRefused) {
  auto merges = [](const char* text) { return error_after([&](json& f) { f["model"]["merges"] = json::parse(text); }); };
  EXPECT_EQ(merges(R"([["a", "z"]])"), "t.json: model.merges: merge 0 ('a' 'z') needs the token 'z', which is not in the vocabulary");
  EXPECT_EQ(merges(R"(["b c"])"), "t.json: model.merges: merge 0 ('b' 'c') needs the token 'bc', which is not in the vocabulary");
  for (const char* bad : {R"(["a b", "abc"])", R"([["a", "b"], ["a"]])", R"([["a", "b"], ["a", "b", "c"]])", R"([["a", "b"], 3])",
                          R"([["a", "b"], ["a", 3]])", R"([["a", "b"], {}])", R"([["a", "b"], ["a", ["b"]]])", R"(["a b", "a b c"])"}) {
    EXPECT_EQ(merges(bad), "t.json: model.merges[1] is not a pair of tokens ([\"a\", \"b\"] or \"a b\")") << bad;
  }
  EXPECT_EQ(merges("3"), "t.json: model.merges: expected an array, found number");
  EXPECT_EQ(error_after([](json& f) { f["model"].erase("merges"); }), "t.json: model.merges is missing");
}

TEST(TokenizerJson, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(error_after([](json& f) {
              f["model"] = {{"type", "Unigram"}, {"vocab", json::parse(R"([["a", -1.5]])")}};
            }),
            "t.json: model.type is 'Unigram'; supported: BPE");
  EXPECT_EQ(error_after([](json& f) { f["model"]["dropout"] = 0.1; }),
            "t.json: model.dropout makes the tokens random; supported: null or 0");
  EXPECT_EQ(
      error_after([](json& f) {
        f["normalizer"] = {{"type", "Nmt"}};
      }),
      "t.json: normalizer.type is 'Nmt'; supported: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, "
      "ByteLevel");
  EXPECT_EQ(error_after([](json& f) {
              f["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})");
            }),
            "t.json: pre_tokenizer.pretokenizers[0].type is 'UnicodeScripts'; supported: Sequence, Split, ByteLevel, Metaspace, Digits, "
            "Punctuation, Whitespace, WhitespaceSplit");
  EXPECT_EQ(error_after([](json& f) {
              f["decoder"] = {{"type", "CTC"}};
            }),
            "t.json: decoder.type is 'CTC'; supported: Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip");
  EXPECT_EQ(
      error_after([](json& f) {
        f["post_processor"] = {{"type", "Magic"}};
      }),
      "t.json: post_processor.type is 'Magic'; supported: Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing");
  EXPECT_EQ(error_after([](json& f) {
              f["decoder"] = json::parse(R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})");
            }),
            "t.json: decoder: ByteFallback after Fuse or ByteLevel is not supported");
}

TEST(TokenizerJson, WrongTypesAndValuesAreRefusedWithThePlace) {
  EXPECT_EQ(error_after([](json& f) { f["normalizer"] = 3; }), "t.json: normalizer: expected an object, found number");
  EXPECT_EQ(error_after([](json& f) { f["normalizer"] = {{"type", 3}}; }), "t.json: normalizer.type: expected a string, found number");
  EXPECT_EQ(error_after([](json& f) { f["normalizer"] = {{"type", "Prepend"}}; }), "t.json: normalizer.prepend is missing");
  EXPECT_EQ(error_after([](json& f) { f["model"]["byte_fallback"] = "yes"; }),
            "t.json: model.byte_fallback: expected true or false, found string");
  EXPECT_EQ(error_after([](json& f) { f["model"]["unk_token"] = "<unk>"; }),
            "t.json: model.unk_token is '<unk>', which is not in the vocabulary");
  EXPECT_EQ(
      error_after([](json& f) { f["pre_tokenizer"] = json::parse(R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"})"); }),
      "t.json: pre_tokenizer.behavior is 'Odd'; allowed: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
  EXPECT_EQ(error_after([](json& f) {
              f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
            }),
            "t.json: pre_tokenizer.replacement is 'ab'; expected one character");
  EXPECT_EQ(error_after([](json& f) { f["added_tokens"][0]["id"] = 1e9; }),
            "t.json: added_tokens[0].id: expected a whole number, found number");
  EXPECT_EQ(error_after([](json& f) { f["added_tokens"][0]["id"] = 1000000000; }),
            "t.json: added_tokens[0].id is 1000000000; allowed: 0 to 4194303");
  EXPECT_EQ(error_after([](json& f) { f["added_tokens"][0]["id"] = 2; }),
            "t.json: added token '<s>' has id 2, which the vocabulary gives to 'ab'");
  EXPECT_EQ(error_after([](json& f) { f["added_tokens"][0]["content"] = "a"; }),
            "t.json: added token 'a' has id 4, but the vocabulary gives it id 0");
  EXPECT_EQ(error_after([](json& f) { f["added_tokens"][0]["content"] = ""; }), "t.json: added_tokens[0].content is empty");
  EXPECT_EQ(error_after([](json& f) {
              f["added_tokens"].push_back({{"id", 4}, {"content", "<t>"}});
            }),
            "t.json: two added tokens have id 4");
  EXPECT_EQ(error_after([](json& f) {
              f["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 77}}, {"sep", {"<s>", 4}}};
            }),
            "t.json: the special token id 77 that goes around a text is not in the vocabulary");
}

TEST(TokenizerJson, RegularExpressionsThatDoNotCompileAreRefused) {
  auto pattern = [](const char* regex) {
    return error_after([&](json& f) {
      f["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
    });
  };
  EXPECT_EQ(pattern("(a"), "t.json: pre_tokenizer.pattern.Regex: invalid regular expression '(a': missing closing parenthesis at offset 2");
  EXPECT_EQ(pattern("[a&&b]"),
            "t.json: pre_tokenizer.pattern.Regex: the intersection of character classes (&&) is not supported: '[a&&b]'");
  EXPECT_EQ(pattern("[a[b]]"), "t.json: pre_tokenizer.pattern.Regex: a character class inside another is not supported: '[a[b]]'");
  EXPECT_EQ(pattern(R"(\p{Klingon})").substr(0, 74), R"(t.json: pre_tokenizer.pattern.Regex: invalid regular expression '\p{Klingo)");
}

// Exponential search: the expression is stopped, the process does not hang.
TEST(TokenizerJson, AHostileRegularExpressionGivesUp) {
  json file = base();
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+[bc]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "t.json");
  try {
    tokenizer.encode(std::string(200, 'a'));
    FAIL() << "the search ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
    EXPECT_EQ(std::string(error.what()).substr(0, 90),
              "t.json: pre_tokenizer.pattern.Regex: the regular expression gave up at byte 0 of a text of");
  }
}

// Random damage to a file that uses most components: an error or a tokenizer, nothing else.
TEST(TokenizerJson, DamagedFilesAreRefusedOrLoad) {
  const std::string text = read_json(test_data() / "models/tiny-qwen3/tokenizer.json").dump();
  // The interesting half is before the vocabulary: keep the file small.
  json small = json::parse(text);
  small["model"]["vocab"] = json::object();
  for (size_t i = 0; i < 256; ++i) small["model"]["vocab"][byte_level_characters()[i]] = i;
  small["model"]["merges"] = json::array();
  small["added_tokens"] = {{{"id", 256}, {"content", "<x>"}, {"special", true}}};
  const std::string good = small.dump();
  ASSERT_EQ(load_error(good), "accepted");
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = good;
    for (uint32_t n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, random() % 40);
          break;
        case 2:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40));
          break;
        default:
          damaged.resize(at);
      }
      if (damaged.empty()) break;
    }
    const std::string error = load_error(damaged);
    refused += error != "accepted";
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_GT(refused, 1000);
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedWithTheByteOffset) {
  const Tokenizer tokenizer = Tokenizer::from_json(base().dump());
  for (const auto& [text, offset] : std::vector<std::pair<std::string, int>>{
           {"ab\xFF", 2}, {"\xC3", 0}, {"aaaaaaaaaaaaaa\xE2\x82", 14}, {"\xED\xA0\x80", 0}, {"a\xC0\x80", 1}, {"\xF4\x90\x80\x80", 0}}) {
    try {
      tokenizer.encode(text);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
      EXPECT_EQ(error.what(), fmt::format("the text is not valid UTF-8 at byte {}", offset));
    }
  }
}

TEST(Tokenizer, AMissingFileIsNotFound) {
  try {
    Tokenizer::load_tokenizer_json("/nonexistent/tokenizer.json");
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_STREQ(error.what(), "cannot open /nonexistent/tokenizer.json: No such file or directory");
  }
  EXPECT_THROW(Tokenizer::load_tokenizer_json("/"), Error);
}

// A megabyte without a place to split would take hours if merging were quadratic.
TEST(Tokenizer, OneHugeWordIsMergedInReasonableTime) {
  const Tokenizer tokenizer = Tokenizer::load_tokenizer_json(test_data() / "models/tiny-qwen3/tokenizer.json");
  for (const char c : {'a', ' ', '\n', '!'}) {
    const std::string text(1 << 20, c);
    const Ids ids = tokenizer.encode(text, {.add_special_tokens = false});
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer tokenizer = Tokenizer::load_tokenizer_json(test_data() / "models/tiny-qwen3/tokenizer.json");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "The theory of " + std::to_string(i) + " others; ";
  const Ids expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&equal, &text, &expected, tokenizer] {
      const Ids ids = tokenizer.encode(text);
      equal += ids == expected && tokenizer.decode(ids) == text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 4);
}

}  // namespace
}  // namespace minisgl
