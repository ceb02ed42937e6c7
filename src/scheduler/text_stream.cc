#include "scheduler/text_stream.h"

namespace minisgl {

TextStream::TextStream(const Request& request) : matcher_(request.stop) {
  if (request.tokenizer) detokenizer_.emplace(*request.tokenizer);
}

const std::string* TextStream::push(int32_t token_id, bool allow_stop, std::string& text) {
  if (!detokenizer_) return nullptr;
  piece_.clear();
  detokenizer_->push(token_id, piece_);
  return match(allow_stop, text);
}

const std::string* TextStream::finish(bool allow_stop, std::string& text) {
  if (!detokenizer_) return nullptr;
  piece_.clear();
  detokenizer_->finish(piece_);
  const std::string* stop = match(allow_stop, text);
  if (stop == nullptr) matcher_.finish(text);
  return stop;
}

const std::string* TextStream::match(bool allow_stop, std::string& text) {
  const int stop = matcher_.push(piece_, allow_stop, text);
  return stop < 0 ? nullptr : &matcher_.stop(stop);
}

}  // namespace minisgl
