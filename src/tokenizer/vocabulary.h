#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

/// Ids of tokens are below this in any vocabulary that we accept, so that an id from a file never sizes a huge table.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;

/// A set of tokens with their ids, each distinct, looked up either way. The texts lie in one block of memory.
class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  /// Room for `tokens` tokens of `text_bytes` bytes together. Optional.
  void reserve(size_t tokens, size_t text_bytes);

  enum class Added { kDone, kTokenExists, kIdExists };
  /// `id` is in [0, kMaxTokenId].
  Added add(std::string_view token, int32_t id);

  /// The id of `token`; kNone if it is not in the vocabulary.
  int32_t find(std::string_view token) const;
  bool contains(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < spans_.size() && spans_[static_cast<size_t>(id)].used; }
  /// The token of `id`, which the vocabulary contains. Valid until the next add().
  std::string_view token(int32_t id) const;

  /// Number of tokens.
  size_t size() const { return size_; }
  /// One more than the largest id.
  int32_t id_limit() const { return static_cast<int32_t>(spans_.size()); }

 private:
  struct Span {
    uint64_t begin = 0;
    uint32_t size_bytes = 0;
    bool used = false;
  };
  void grow(size_t slots);

  std::string text_;
  std::vector<Span> spans_;     // by id
  std::vector<int32_t> slots_;  // open addressing: id or kNone; a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace minisgl
