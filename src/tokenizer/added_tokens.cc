#include "tokenizer/added_tokens.h"

#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

uint64_t edge(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

size_t skip_white_space(std::string_view text, size_t offset) {
  for (size_t next = offset; next < text.size(); offset = next) {
    if (!is_white_space(next_code_point(text, next))) break;
  }
  return offset;
}

// Where the white space that ends at `offset` begins; not before `limit`.
size_t skip_white_space_back(std::string_view text, size_t offset, size_t limit) {
  while (offset > limit) {
    const size_t previous = previous_character(text, offset);
    size_t after = previous;
    if (!is_white_space(next_code_point(text, after))) break;
    offset = previous;
  }
  return offset;
}

bool word_before(std::string_view text, size_t offset) {
  if (offset == 0) return false;
  size_t previous = previous_character(text, offset);
  return is_word(next_code_point(text, previous));
}

bool word_after(std::string_view text, size_t offset) {
  return offset < text.size() && is_word(next_code_point(text, offset));
}

}  // namespace

void AddedTokenMatcher::add(std::string_view content, const AddedToken& token) {
  uint32_t node = 0;
  for (const char byte : content) {
    const auto [place, created] = edges_.try_emplace(edge(node, byte), static_cast<uint32_t>(tokens_.size()));
    if (created) tokens_.push_back(nullptr);
    node = place->second;
  }
  first_bytes_[static_cast<uint8_t>(content.front())] = true;
  if (tokens_[node] == nullptr) tokens_[node] = &token;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t begin) const {
  Match match;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i]));
    if (next == edges_.end()) break;
    node = next->second;
    if (tokens_[node] != nullptr) match = {i + 1, tokens_[node]};
  }
  return match;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::split(std::string_view text, bool parse_special) const {
  std::vector<Part> parts;
  size_t covered = 0;
  for (size_t i = 0; i < text.size();) {
    if (!first_bytes_[static_cast<uint8_t>(text[i])]) {
      ++i;
      continue;
    }
    const Match match = longest_at(text, i);
    if (match.token == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i;
    size_t end = match.end;
    i = end;
    if (match.token->special && !parse_special) continue;
    if (match.token->single_word && (word_before(text, begin) || word_after(text, end))) continue;
    // White space that the token before has swallowed is not there to be swallowed again.
    if (match.token->lstrip) begin = covered < begin ? skip_white_space_back(text, begin, covered) : covered;
    if (match.token->rstrip) end = skip_white_space(text, end);
    if (covered < begin) parts.push_back({covered, begin, nullptr});
    parts.push_back({begin, end, match.token});
    covered = end;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), nullptr});
  return parts;
}

}  // namespace minisgl
