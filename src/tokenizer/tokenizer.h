#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/gguf_vocabulary.h"

namespace minisgl {

/// A token that is cut out of the text before normalisation and pre-tokenisation, never built by merges.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      ///< a control token: hidden by decode(skip_special), ordinary text under parse_special = false
  bool lstrip = false;       ///< swallows the white space to its left
  bool rstrip = false;       ///< swallows the white space to its right
  bool single_word = false;  ///< matches only between non-word characters
  bool normalized = false;   ///< matched in the normalised text rather than in the text as given
};

struct EncodeOptions {
  /// Adds what the tokenizer itself puts around a sequence (BOS, EOS). Off for text that a chat template rendered.
  bool add_special_tokens = true;
  /// Turns the text of a special token ("<|im_end|>") into that token. Off for text that must not smuggle in control tokens. Added tokens
  /// that are not special are recognised either way.
  bool parse_special = true;
};

/// Text to token ids and back, as Hugging Face `tokenizers` computes it from the same tokenizer.json.
///
/// An immutable value behind a shared pointer: copies are cheap, and any number of threads may use one at once (scratch memory is per
/// call). What tokenizer.json asks for and this class does not do is refused at load with Error(kNotSupported) that names the component;
/// a malformed file is Error(kBadModel).
class Tokenizer {
 public:
  /// Reads the file `path` (a tokenizer.json, not its folder). Throws Error(kNotFound) or Error(kIo) when it cannot be read.
  static Tokenizer load_tokenizer_json(const std::filesystem::path& path);
  /// The same from memory; `name` stands for the file in error messages.
  static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");
  /// A vocabulary of a GGUF file: model "gpt2" with a known `pre`.
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary);

  /// The ids of `text`. Throws Error(kInvalidRequest) with the byte offset when `text` is not valid UTF-8.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The text of `ids`, always valid UTF-8: bytes that form no character become U+FFFD. An id without a token adds nothing.
  /// `skip_special` leaves out special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  /// One more than the largest id that has a token. A model may have more rows than that.
  int32_t vocab_size() const;
  /// The token as the vocabulary spells it ("Ġthe", "<0x0A>", "<|im_end|>"); nothing when the id has no token.
  std::optional<std::string_view> id_to_token(int32_t id) const;
  /// The id of a token as the vocabulary spells it.
  std::optional<int32_t> token_to_id(std::string_view token) const;
  /// The bytes that a token adds to a text in which it is not the first: perhaps part of a character, so perhaps not valid UTF-8. Empty
  /// when the id has no token. The view lives as long as any copy of this tokenizer.
  std::string_view token_bytes(int32_t id) const;
  /// Whether decode(skip_special = true) leaves the token out.
  bool is_special(int32_t id) const;
  /// Every added token, by ascending id.
  std::span<const AddedToken> added_tokens() const;

  struct Impl;

 private:
  friend class Detokenizer;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace minisgl
