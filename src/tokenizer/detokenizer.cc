#include "tokenizer/detokenizer.h"

#include "tokenizer/tokenizer_impl.h"

namespace minisgl {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer.impl_), skip_special_(skip_special) {}

std::string Detokenizer::push(int32_t id) {
  std::string text;
  push(id, text);
  return text;
}

void Detokenizer::push(int32_t id, std::string& text) {
  if (skip_special_) {
    const AddedToken* added = tokenizer_->added_token(id);
    if (added != nullptr && added->special) return;
  }
  if (const auto token = tokenizer_->decoder_spelling(id)) tokenizer_->decoder.push(state_, id, *token, text);
}

std::string Detokenizer::finish() {
  std::string text;
  finish(text);
  return text;
}

void Detokenizer::finish(std::string& text) {
  tokenizer_->decoder.finish(state_, text);
}

}  // namespace minisgl
