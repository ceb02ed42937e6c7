#include "tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a value of tokenizer.ggml.pre stands for; the tokenizer.json files that such vocabularies were converted from say the same.
struct Preset {
  std::string_view name;
  bool digits_alone;  // every digit is a word, before anything else is split
  const char* pattern;
  bool compose = false;  // NFC
  bool ignore_merges = false;
};
constexpr Preset kPresets[] = {
    {"default", false, nullptr},
    {"gpt-2", false, nullptr},
    {"smollm", true, nullptr},
    {"starcoder", true, nullptr},
    {"qwen2", false, kQwen2Pattern, true},
    {"llama-bpe", false, kLlama3Pattern, false, true},
};

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

const Preset& find_preset(const std::string& name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", preset.name);
  }
  fail(ErrorKind::kNotSupported, "tokenizer.ggml.pre is '{}'; supported: {}", name, known);
}

void check_id(const char* key, const std::optional<int32_t>& id, const GgufVocabulary& vocabulary) {
  if (id && (*id < 0 || static_cast<size_t>(*id) >= vocabulary.tokens.size())) {
    fail(ErrorKind::kBadModel, "{} is {}; the vocabulary has {} tokens", key, *id, vocabulary.tokens.size());
  }
}

std::vector<int32_t> around(bool wanted, const char* flag, const std::optional<int32_t>& id) {
  if (!wanted) return {};
  if (!id) fail(ErrorKind::kBadModel, "{} is true, but the id of that token is missing", flag);
  return {*id};
}

}  // namespace

TokenizerParts read_gguf_vocabulary(const GgufVocabulary& vocabulary) {
  if (vocabulary.model != "gpt2") {
    fail(ErrorKind::kNotSupported, "tokenizer.ggml.model is '{}'; supported: gpt2 (byte-level BPE)", vocabulary.model);
  }
  if (vocabulary.add_space_prefix) fail(ErrorKind::kNotSupported, "tokenizer.ggml.add_space_prefix is true; supported for gpt2: false");
  const Preset& preset = find_preset(vocabulary.pre);
  const size_t count = vocabulary.tokens.size();
  if (count == 0) fail(ErrorKind::kBadModel, "tokenizer.ggml.tokens is empty");
  if (count > static_cast<size_t>(kMaxTokenId)) {
    fail(ErrorKind::kBadModel, "tokenizer.ggml.tokens has {} entries; at most {} are supported", count, kMaxTokenId);
  }
  if (!vocabulary.token_types.empty() && vocabulary.token_types.size() != count) {
    fail(ErrorKind::kBadModel, "tokenizer.ggml.token_type has {} entries for {} tokens", vocabulary.token_types.size(), count);
  }
  check_id("tokenizer.ggml.bos_token_id", vocabulary.bos_id, vocabulary);
  check_id("tokenizer.ggml.eos_token_id", vocabulary.eos_id, vocabulary);
  check_id("tokenizer.ggml.unknown_token_id", vocabulary.unk_id, vocabulary);

  TokenizerParts parts;
  if (preset.compose) parts.normalizer.add(Normalizer::UnicodeForm{.compose = true});
  if (preset.digits_alone) parts.pre_tokenizer.add(PreTokenizer::SplitCharacters{is_numeric, SplitBehavior::kIsolated});
  PreTokenizer::ByteLevel byte_level;
  if (preset.pattern != nullptr) {
    parts.pre_tokenizer.add(PreTokenizer::Split{.pattern = Regex(preset.pattern, "tokenizer.ggml.pre")});
  } else {
    byte_level.split.emplace_back(PreTokenizer::kGpt2Pattern, "tokenizer.ggml.pre");
  }
  parts.pre_tokenizer.add(std::move(byte_level));
  parts.decoder = TextDecoder({TextDecoder::ByteLevel{}}, "tokenizer.ggml");

  Vocabulary tokens;
  tokens.reserve(count, 0);
  for (size_t i = 0; i < count; ++i) {
    const std::string& token = vocabulary.tokens[i];
    const int32_t id = static_cast<int32_t>(i);
    if (find_invalid_utf8(token) != std::string_view::npos) fail(ErrorKind::kBadModel, "tokenizer.ggml.tokens[{}] is not valid UTF-8", i);
    if (tokens.add(token, id) != Vocabulary::Added::kDone) {
      fail(ErrorKind::kBadModel, "tokenizer.ggml.tokens[{}] '{}' is also token {}", i, token, tokens.find(token));
    }
    const int32_t type = vocabulary.token_types.empty() ? kNormal : vocabulary.token_types[i];
    if (type < kNormal || type > kByte) fail(ErrorKind::kBadModel, "tokenizer.ggml.token_type[{}] is {}; allowed: 1 to 6", i, type);
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      if (token.empty()) fail(ErrorKind::kBadModel, "tokenizer.ggml.tokens[{}] is empty, but of type {}", i, type);
      parts.added_tokens.push_back({.id = id, .content = token, .special = type != kUserDefined});
    }
  }
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  merges.reserve(vocabulary.merges.size());
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorKind::kBadModel, "tokenizer.ggml.merges[{}] is '{}'; expected two tokens with one space between", i, merge);
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  parts.model =
      BpeModel(std::move(tokens), merges, {.ignore_merges = preset.ignore_merges, .words_are_bytes = true}, "tokenizer.ggml.merges");
  parts.prefix_ids = around(vocabulary.add_bos, "tokenizer.ggml.add_bos_token", vocabulary.bos_id);
  parts.suffix_ids = around(vocabulary.add_eos, "tokenizer.ggml.add_eos_token", vocabulary.eos_id);
  return parts;
}

}  // namespace minisgl
