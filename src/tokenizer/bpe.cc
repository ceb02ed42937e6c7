#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

// Up to this many symbols a scan for the best pair beats a heap.
constexpr size_t kShortWordSymbols = 24;
constexpr size_t kCachedWords = 8192;
// A text shorter than this repeats too few words to pay for the cache.
constexpr size_t kMinCachedTextBytes = 8192;
constexpr size_t kMaxCachedWordBytes = 15;
constexpr size_t kMaxCachedIds = 7;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t hash_pair(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ key >> 32;
}

std::string quoted(std::string_view token) {
  return fmt::format("'{}'", token.substr(0, 64));
}

}  // namespace

void MergeTable::reserve(size_t merges) {
  const size_t wanted = std::bit_ceil(std::max<size_t>(merges * 2, 16));
  if (wanted <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(wanted));
  for (const Slot& slot : old) {
    if (slot.key != kEmpty) slot_of(slot.key) = slot;
  }
}

MergeTable::Slot& MergeTable::slot_of(uint64_t key) {
  size_t index = hash_pair(key) & (slots_.size() - 1);
  while (slots_[index].key != key && slots_[index].key != kEmpty) index = (index + 1) & (slots_.size() - 1);
  return slots_[index];
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  if ((size_ + 1) * 2 > slots_.size()) reserve(size_ + size_ / 2 + 8);
  Slot& slot = slot_of(pair_key(left, right));
  if (slot.key == kEmpty) ++size_;
  slot = {pair_key(left, right), merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return {};
  const uint64_t key = pair_key(left, right);
  size_t index = hash_pair(key) & (slots_.size() - 1);
  while (slots_[index].key != kEmpty) {
    if (slots_[index].key == key) return slots_[index].merge;
    index = (index + 1) & (slots_.size() - 1);
  }
  return {};
}

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<std::pair<std::string_view, std::string_view>>& merges, BpeOptions options,
                   const std::string& where)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  plain_ = options_.continuing_prefix.empty() && options_.end_suffix.empty();
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    if (options_.words_are_bytes) {
      character_ids_[byte] = vocabulary_.find(byte_level_characters()[byte]);
    } else {
      const char c = static_cast<char>(byte);
      character_ids_[byte] = byte < 0x80 ? vocabulary_.find({&c, 1}) : Vocabulary::kNone;
    }
  }
  merges_.reserve(merges.size());
  std::string merged;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    auto id_of = [&](std::string_view token) {
      const int32_t id = vocabulary_.find(token);
      if (id == Vocabulary::kNone) {
        fail(ErrorKind::kBadModel, "{}: merge {} ({} {}) needs the token {}, which is not in the vocabulary", where, rank, quoted(left),
             quoted(right), quoted(token));
      }
      return id;
    };
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    const size_t prefix = options_.continuing_prefix.size();
    if (right.size() < prefix) {
      fail(ErrorKind::kBadModel, "{}: merge {} ({} {}): the right side is shorter than continuing_subword_prefix '{}'", where, rank,
           quoted(left), quoted(right), options_.continuing_prefix);
    }
    merged.assign(left);
    merged.append(right.substr(prefix));
    merges_.set(left_id, right_id, {static_cast<uint32_t>(rank), id_of(merged)});
  }
  cut_ = find_cut(merges);
}

// Tokenizers without a pre-tokenizer make one word of a whole text. If no merge joins what precedes a space with that space (spelled ' ' or
// U+2581), then a word may be cut before every space that does not follow another, with the same result: no symbol ever spans the cut.
// Returns the character to cut before, or nothing.
std::string BpeModel::find_cut(const std::vector<std::pair<std::string_view, std::string_view>>& merges) const {
  if (!plain_ || options_.words_are_bytes || options_.ignore_merges) return {};
  // A dropped character would bring the spaces around it together.
  const bool has_all_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), Vocabulary::kNone) == byte_ids_.end();
  const bool has_unknown = options_.unk_id != Vocabulary::kNone;
  if (!has_unknown && !(options_.byte_fallback && has_all_bytes)) return {};
  for (const std::string_view space : {"\xE2\x96\x81", " "}) {
    if (vocabulary_.find(space) == Vocabulary::kNone) continue;
    if (has_unknown && vocabulary_.token(options_.unk_id).ends_with(space)) return {};
    const bool spanned = std::any_of(merges.begin(), merges.end(),
                                     [&](const auto& merge) { return merge.second.starts_with(space) && !merge.first.ends_with(space); });
    return spanned ? std::string() : std::string(space);
  }
  return {};
}

// An entry of the direct-mapped cache of short words.
struct BpeModel::Scratch::CachedWord {
  uint8_t word_bytes = 0;  // 0: empty
  char word[kMaxCachedWordBytes];
  uint32_t id_count;
  int32_t ids[kMaxCachedIds];
};

void BpeModel::Scratch::FreeCache::operator()(CachedWord* words) const {
  delete[] words;
}

BpeModel::Scratch::Scratch(size_t text_bytes) {
  if (text_bytes >= kMinCachedTextBytes) cache.reset(new CachedWord[kCachedWords]);
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (!cut_.empty()) {
    for (size_t at = word.find(cut_, 1); at != std::string_view::npos; at = word.find(cut_, at + cut_.size())) {
      if (word.substr(0, at).ends_with(cut_)) continue;
      encode_cached(word.substr(0, at), scratch, ids);
      word.remove_prefix(at);
      at = 0;
    }
  }
  encode_cached(word, scratch, ids);
}

void BpeModel::encode_cached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  Scratch::CachedWord* entry = nullptr;
  if (scratch.cache != nullptr && word.size() <= kMaxCachedWordBytes) {
    entry = &scratch.cache[std::hash<std::string_view>()(word) % kCachedWords];
    if (entry->word_bytes == word.size() && std::memcmp(entry->word, word.data(), word.size()) == 0) {
      ids.insert(ids.end(), entry->ids, entry->ids + entry->id_count);
      return;
    }
  }
  encode_uncached(word, scratch);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  if (entry != nullptr && scratch.ids.size() <= kMaxCachedIds) {
    entry->word_bytes = static_cast<uint8_t>(word.size());
    std::memcpy(entry->word, word.data(), word.size());
    entry->id_count = static_cast<uint32_t>(scratch.ids.size());
    std::copy(scratch.ids.begin(), scratch.ids.end(), entry->ids);
  }
}

// Leaves the ids of `word` in scratch.ids.
void BpeModel::encode_uncached(std::string_view word, Scratch& scratch) const {
  scratch.ids.clear();
  std::string spelled;
  const bool spell = options_.words_are_bytes && (options_.ignore_merges || options_.byte_fallback || !plain_);
  if (spell) spelled = byte_level_encode(word);
  if (options_.ignore_merges) {
    const int32_t id = vocabulary_.find(spell ? std::string_view(spelled) : word);
    if (id != Vocabulary::kNone) {
      scratch.ids.push_back(id);
      return;
    }
  }
  if (options_.words_are_bytes && plain_ && !options_.byte_fallback) {
    for (const char c : word) {
      const int32_t id = character_ids_[static_cast<uint8_t>(c)];
      if (id != Vocabulary::kNone) {
        scratch.ids.push_back(id);
      } else if (options_.unk_id != Vocabulary::kNone) {
        scratch.ids.clear();
        split_characters(byte_level_encode(word), scratch.ids);
        break;
      }
    }
  } else {
    split_characters(spell ? std::string_view(spelled) : word, scratch.ids);
  }
  if (scratch.ids.size() <= kShortWordSymbols) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

// The token of each character of a word. The order in which an unknown token and the byte tokens after it come out is Hugging Face's.
void BpeModel::split_characters(std::string_view word, std::vector<int32_t>& ids) const {
  bool unknown_pending = false;
  std::string affixed;
  for (size_t offset = 0; offset < word.size();) {
    const size_t begin = offset;
    const char32_t code_point = next_code_point(word, offset);
    std::string_view character = word.substr(begin, offset - begin);
    int32_t id;
    if (plain_ && code_point < 0x80 && !options_.words_are_bytes) {
      id = character_ids_[code_point];
    } else {
      if (!plain_) {
        affixed.clear();
        if (begin > 0) affixed += options_.continuing_prefix;
        affixed += character;
        if (offset == word.size()) affixed += options_.end_suffix;
        character = affixed;
      }
      id = vocabulary_.find(character);
    }
    if (id != Vocabulary::kNone) {
      if (unknown_pending) ids.push_back(options_.unk_id);
      unknown_pending = false;
      ids.push_back(id);
      continue;
    }
    auto has_byte = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] != Vocabulary::kNone; };
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(), has_byte)) {
      for (const char c : character) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      continue;
    }
    if (options_.unk_id == Vocabulary::kNone) continue;
    if (unknown_pending && !options_.fuse_unk) ids.push_back(options_.unk_id);
    unknown_pending = true;
  }
  if (unknown_pending) ids.push_back(options_.unk_id);
}

// Merges the best pair, the leftmost of equals, until none is left.
void BpeModel::merge_short(Scratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  if (ids.size() < 2) return;
  std::array<MergeTable::Merge, kShortWordSymbols> merges;  // merges[i] is of symbols i and i + 1
  size_t pairs = ids.size() - 1;
  for (size_t i = 0; i < pairs; ++i) merges[i] = merges_.find(ids[i], ids[i + 1]);
  while (pairs > 0) {
    size_t best = 0;
    for (size_t i = 1; i < pairs; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoMerge) break;
    ids[best] = merges[best].id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + static_cast<std::ptrdiff_t>(best) + 1, merges.begin() + static_cast<std::ptrdiff_t>(pairs),
              merges.begin() + static_cast<std::ptrdiff_t>(best));
    --pairs;
    if (best > 0) merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best < pairs) merges[best] = merges_.find(ids[best], ids[best + 1]);
  }
}

// The same with a linked list of symbols and a heap of pairs. A heap entry is (rank, position of the left symbol); it is stale, and
// ignored, when the pair at that position no longer has that rank.
void BpeModel::merge_long(Scratch& scratch) const {
  constexpr int32_t kEnd = -1;
  constexpr int32_t kGone = -1;
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const int32_t count = static_cast<int32_t>(scratch.ids.size());
  symbols.resize(scratch.ids.size());
  heap.clear();
  auto entry = [](uint32_t rank, int32_t position) { return uint64_t{rank} << 32 | static_cast<uint32_t>(position); };
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)] = {scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : kEnd};
    if (i + 1 < count) {
      const MergeTable::Merge merge = merges_.find(scratch.ids[static_cast<size_t>(i)], scratch.ids[static_cast<size_t>(i) + 1]);
      if (merge.rank != MergeTable::kNoMerge) heap.push_back(entry(merge.rank, i));
    }
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  auto push_pair = [&](int32_t left) {
    const Scratch::Symbol& symbol = symbols[static_cast<size_t>(left)];
    const MergeTable::Merge merge = merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
    if (merge.rank == MergeTable::kNoMerge) return;
    heap.push_back(entry(merge.rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const int32_t position = static_cast<int32_t>(top & UINT32_MAX);
    Scratch::Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.id == kGone || left.next == kEnd) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const MergeTable::Merge merge = merges_.find(left.id, right.id);
    if (merge.rank != top >> 32) continue;
    left.id = merge.id;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kEnd) {
      symbols[static_cast<size_t>(left.next)].previous = position;
      push_pair(position);
    }
    if (left.previous != kEnd) push_pair(left.previous);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i != kEnd; i = symbols[static_cast<size_t>(i)].next) scratch.ids.push_back(symbols[static_cast<size_t>(i)].id);
}

}  // namespace minisgl
