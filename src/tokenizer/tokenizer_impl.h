#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_decoder.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// The parts of a tokenizer as the reader of a file finds them.
struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  std::vector<AddedToken> added_tokens;
  std::vector<int32_t> prefix_ids;  ///< what EncodeOptions::add_special_tokens puts before the text
  std::vector<int32_t> suffix_ids;  ///< and after it
  TextDecoder decoder;              ///< no tokens declared yet
};

/// Reads a tokenizer.json; `name` stands for it in errors.
TokenizerParts read_tokenizer_json(std::string_view json, const std::string& name);
/// Reads the vocabulary of a GGUF file.
TokenizerParts read_gguf_vocabulary(const GgufVocabulary& vocabulary);

/// The tokenizer at work: the parts, checked, and what follows from them. Does not change once built.
struct Tokenizer::Impl : TokenizerParts {
  /// Checks the added tokens against the vocabulary and each other; `name` stands for the file in errors.
  Impl(TokenizerParts parts, const std::string& name);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const;

  /// Null when the id is not an added token.
  const AddedToken* added_token(int32_t id) const;
  /// How the vocabulary spells a token; nothing when the id has none.
  std::optional<std::string_view> spelling(int32_t id) const;
  /// The same for the decoder: an added token that is matched in normalised text is spelled as normalised.
  std::optional<std::string_view> decoder_spelling(int32_t id) const;

  Vocabulary added_vocabulary;                   ///< of the added tokens, which are sorted by id
  std::vector<std::string> normalized_contents;  ///< beside added_tokens; empty for a token that is matched as given
  AddedTokenMatcher matcher;                     ///< of tokens that are matched in the text as given
  AddedTokenMatcher normalized_matcher;          ///< of tokens that are matched in the normalised text
  int32_t id_limit = 0;                          ///< one more than the largest id

 private:
  void encode_words(std::string_view text, bool at_start, BpeModel::Scratch& scratch, std::vector<int32_t>& ids) const;
};

}  // namespace minisgl
