#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizer/text_decoder.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// Turns a stream of token ids into a stream of text, a token at a time.
///
/// For any ids, the pieces that push() returns and what finish() returns at the end concatenate to Tokenizer::decode() of all the ids.
/// Each piece is valid UTF-8: a character is held back until its last byte is there. Tokens that stand for single bytes ("<0x0A>") are
/// held back until another token follows, because one wrong byte spoils the whole run. The work per token does not depend on how many
/// came before. A value: copying it forks the stream. It keeps its tokenizer alive. Not thread safe.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  /// Takes one more id and returns the text that is now certain; often empty. An id without a token adds nothing.
  std::string push(int32_t id);
  /// The same, appended to `text`.
  void push(int32_t id, std::string& text);
  /// Ends the stream: returns what was held back, an unfinished character as U+FFFD. The object then starts a new stream.
  std::string finish();
  void finish(std::string& text);

 private:
  std::shared_ptr<const Tokenizer::Impl> tokenizer_;
  bool skip_special_;
  TextDecoder::State state_;
};

}  // namespace minisgl
