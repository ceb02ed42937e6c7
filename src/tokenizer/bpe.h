#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace minisgl {

/// The merges of a byte-pair encoding: which two neighbours become which token, and which pair goes first.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNoMerge;  ///< a lower rank merges earlier
    int32_t id = 0;            ///< the token that the pair becomes
  };
  static constexpr uint32_t kNoMerge = UINT32_MAX;

  void reserve(size_t merges);
  /// A pair that is already there takes the new merge.
  void set(int32_t left, int32_t right, Merge merge);
  /// rank is kNoMerge when the pair does not merge.
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  Slot& slot_of(uint64_t key);

  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  size_t size_ = 0;
};

struct BpeOptions {
  int32_t unk_id = Vocabulary::kNone;  ///< stands for characters without a token; kNone: they are dropped
  bool fuse_unk = false;               ///< one unk for a run of unknown characters
  bool byte_fallback = false;          ///< unknown characters become the tokens "<0x00>" to "<0xFF>" of their bytes
  bool ignore_merges = false;          ///< a word that is a token needs no merges
  std::string continuing_prefix = {};  ///< prefixes every character of a word but the first, for look-up
  std::string end_suffix = {};         ///< follows the last character of a word, for look-up
  bool words_are_bytes = false;        ///< words come as bytes, the vocabulary spells them as byte-level characters
};

/// Byte-pair encoding of words. Immutable, shareable between threads.
class BpeModel {
 public:
  BpeModel() = default;
  /// `merges` as pairs of tokens, best first. Throws Error(kBadModel), which begins with `where`, when a merge names or makes a token that
  /// is not in the vocabulary.
  BpeModel(Vocabulary vocabulary, const std::vector<std::pair<std::string_view, std::string_view>>& merges, BpeOptions options,
           const std::string& where);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// The memory that encode() works in, for one thread. It remembers short words, so keep it for all words of a text.
  class Scratch {
   public:
    /// `text_bytes`: size of the text whose words follow.
    explicit Scratch(size_t text_bytes);

   private:
    friend class BpeModel;
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;
    };
    struct CachedWord;
    struct FreeCache {
      void operator()(CachedWord* words) const;
    };
    std::vector<int32_t> ids;
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
    std::unique_ptr<CachedWord[], FreeCache> cache;
  };

  /// Appends the ids of `word`, which is not empty. A word of n characters takes O(n log n).
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  std::string find_cut(const std::vector<std::pair<std::string_view, std::string_view>>& merges) const;
  void encode_cached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_uncached(std::string_view word, Scratch& scratch) const;
  void split_characters(std::string_view word, std::vector<int32_t>& ids) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> character_ids_{};  // of each byte's character (words_are_bytes), else of each ASCII character
  std::array<int32_t, 256> byte_ids_{};       // "<0x00>" ...
  std::string cut_;                           // the character of find_cut(), or empty
  bool plain_ = false;                        // neither prefix nor suffix: character_ids_ may be used
};

}  // namespace minisgl
