#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/normalizer.h"

namespace minisgl {

/// What the `decoder` of a tokenizer.json makes of the tokens, as one pass from left to right.
///
/// Hugging Face runs each decoder over the whole list of tokens. Here the chain is sorted into: steps that rewrite one token at a time,
/// whose results are computed once per id; the two steps that look across tokens (ByteFallback, which joins runs of byte tokens, and the
/// fusion of all tokens into one text); and a strip of the fused text. What such a stream cannot express is refused when the chain is
/// built.
class TextDecoder {
 public:
  /// Removes up to `start` copies of a character from the start of a token or text, and up to `stop` from its end.
  struct Strip {
    std::string character;
    int64_t start = 0;
    int64_t stop = 0;
  };
  /// Spells `replacement` as a space; in the first token, if `drop_first`, as nothing.
  struct Metaspace {
    std::string replacement;
    bool drop_first = false;
  };
  struct ByteFallback {};
  struct ByteLevel {};
  struct Fuse {};
  using Step = std::variant<Replacement, Strip, Metaspace, ByteFallback, ByteLevel, Fuse>;

  TextDecoder() = default;
  /// Without steps, tokens are joined by spaces. Throws Error(kNotSupported), which begins with `where`, for a chain that cannot stream.
  TextDecoder(std::vector<Step> steps, const std::string& where);

  /// Declares that `id` is spelled `token` (valid UTF-8). Ids come in ascending order.
  void add_token(int32_t id, std::string_view token);

  /// What a stream remembers between two tokens.
  struct State {
    std::string held;  ///< bytes that are not text yet: an unfinished character, or a run of byte tokens
    bool token_seen = false;
    int64_t stripped = 0;     ///< characters removed from the start of the text so far
    bool text_begun = false;  ///< the text has a character that the strip keeps
    int64_t held_strip = 0;   ///< trailing characters that the strip removes if nothing follows
  };
  /// Takes a token and appends the text that is now certain. `token` is how add_token() spelled it.
  void push(State& state, int32_t id, std::string_view token, std::string& text) const;
  /// Appends what was held back. The state is then that of a new stream.
  void finish(State& state, std::string& text) const;

  /// The bytes of a token that is not the first. The id has been declared.
  std::string_view token_bytes(int32_t id) const;

 private:
  struct Entry {
    uint64_t begin = 0;
    uint32_t size_bytes = 0;
    bool is_byte = false;
  };
  std::string rewrite(const std::vector<Step>& steps, std::string_view token, bool first) const;
  void emit(State& state, std::string_view piece, std::string& text) const;
  void flush_bytes(State& state, std::string& text) const;

  std::vector<Step> token_steps_;  // before ByteFallback
  std::vector<Step> piece_steps_;  // after it
  bool byte_fallback_ = false;
  bool byte_level_ = false;
  bool join_with_spaces_ = false;
  bool first_differs_ = false;     // a step treats the first token in its own way
  std::vector<Strip> text_strip_;  // after the fusion: at most one
  std::string bytes_;
  std::vector<Entry> entries_;  // by id
};

}  // namespace minisgl
