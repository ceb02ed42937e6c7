#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace minisgl {

void Vocabulary::reserve(size_t tokens, size_t text_bytes) {
  text_.reserve(text_bytes);
  spans_.reserve(tokens);
  if (tokens * 2 > slots_.size()) grow(std::bit_ceil(tokens * 2));
}

Vocabulary::Added Vocabulary::add(std::string_view token, int32_t id) {
  if (contains(id)) return Added::kIdExists;
  if (find(token) != kNone) return Added::kTokenExists;
  if ((size_ + 1) * 2 > slots_.size()) grow(std::max<size_t>(64, slots_.size() * 2));
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = {text_.size(), static_cast<uint32_t>(token.size()), true};
  text_.append(token);
  size_t slot = std::hash<std::string_view>()(token) & (slots_.size() - 1);
  while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = id;
  ++size_;
  return Added::kDone;
}

int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return kNone;
  for (size_t slot = std::hash<std::string_view>()(token) & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1)) {
    const int32_t id = slots_[slot];
    if (id == kNone || this->token(id) == token) return id;
  }
}

std::string_view Vocabulary::token(int32_t id) const {
  const Span& span = spans_[static_cast<size_t>(id)];
  return std::string_view(text_).substr(span.begin, span.size_bytes);
}

void Vocabulary::grow(size_t slots) {
  slots_.assign(slots, kNone);
  for (size_t id = 0; id < spans_.size(); ++id) {
    if (!spans_[id].used) continue;
    size_t slot = std::hash<std::string_view>()(token(static_cast<int32_t>(id))) & (slots - 1);
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots - 1);
    slots_[slot] = static_cast<int32_t>(id);
  }
}

}  // namespace minisgl
