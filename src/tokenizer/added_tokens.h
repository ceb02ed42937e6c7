#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace minisgl {

/// Finds added tokens in a text: at each place the longest, from left to right, as Hugging Face does. Immutable once built, shareable.
class AddedTokenMatcher {
 public:
  struct Part {
    size_t begin;
    size_t end;
    const AddedToken* token;  ///< null: text between added tokens
  };

  /// Matches `content` (not empty) as `token`, which must outlive the matcher. The first of two tokens with one content counts.
  void add(std::string_view content, const AddedToken& token);

  /// Covers `text` with parts, in order. Without `parse_special`, special tokens are text. A token part includes the white space that the
  /// token swallows.
  std::vector<Part> split(std::string_view text, bool parse_special) const;

 private:
  struct Match {
    size_t end = 0;
    const AddedToken* token = nullptr;
  };
  Match longest_at(std::string_view text, size_t begin) const;

  // A trie: node 0 is the root, an edge is (node, byte).
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<const AddedToken*> tokens_{nullptr};  // by node
  std::array<bool, 256> first_bytes_{};
};

}  // namespace minisgl
