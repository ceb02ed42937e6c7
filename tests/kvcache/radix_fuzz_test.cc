#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "kvcache/prefix_cache_harness.h"

namespace minisgl {
namespace {

using State = PageAllocator::State;

/// The cache without a tree: every cached page under the whole key that leads to it. Eviction sorts all of them.
class Model {
 public:
  explicit Model(size_t page_size) : page_size_(page_size) {}

  struct Entry {
    int32_t page = -1;
    int locks = 0;
    uint64_t stamp = 0;
    uint64_t use = 0;
  };
  using Key = std::pair<CacheNamespace, Tokens>;

  Pages match(CacheNamespace ns, const Tokens& tokens) {
    const size_t count = matched(ns, tokens);
    Pages pages(count);
    for (size_t i = count; i-- > 0;) {
      Entry& entry = at(ns, tokens, i);
      pages[i] = entry.page;
      if (entry.locks == 0 && !in_flight(entry)) entry.use = ++clock_;
    }
    return pages;
  }

  size_t matched(CacheNamespace ns, const Tokens& tokens) const {
    size_t count = 0;
    while ((count + 1) * page_size_ <= tokens.size() && entries_.count(key(ns, tokens, count)) > 0) ++count;
    return count;
  }

  void lock(CacheNamespace ns, const Tokens& tokens) {
    for (size_t i = 0; i < tokens.size() / page_size_; ++i) ++at(ns, tokens, i).locks;
  }

  void unlock(CacheNamespace ns, const Tokens& tokens, uint64_t last_step) {
    for (size_t i = tokens.size() / page_size_; i-- > 0;) {
      Entry& entry = at(ns, tokens, i);
      stamp(entry, last_step);
      if (--entry.locks == 0) entry.use = ++clock_;
    }
  }

  /// The tree's pages of the prefix.
  Pages insert(CacheNamespace ns, const Tokens& tokens, const Pages& pages, uint64_t last_step) {
    const size_t count = tokens.size() / page_size_;
    Pages tree(count);
    for (size_t i = count; i-- > 0;) {
      Entry& entry = entries_[key(ns, tokens, i)];
      if (entry.page < 0) entry.page = pages[i];
      tree[i] = entry.page;
      const bool moves = last_step > committed_ || !in_flight(entry);
      if (last_step > committed_) stamp(entry, last_step);
      if (entry.locks == 0 && moves) entry.use = ++clock_;
    }
    return tree;
  }

  /// The pages that leave, with their stamps.
  std::vector<std::pair<int32_t, uint64_t>> evict(size_t count) {
    auto order = unlocked(false);
    const auto later = unlocked(true);
    order.insert(order.end(), later.begin(), later.end());
    std::vector<std::pair<int32_t, uint64_t>> gone;
    for (size_t i = 0; i < std::min(count, order.size()); ++i) {
      gone.emplace_back(order[i]->second.page, order[i]->second.stamp);
      entries_.erase(order[i]);
    }
    return gone;
  }

  void commit(uint64_t step) {
    for (const auto& it : unlocked(true)) {
      if (it->second.stamp <= step) it->second.use = ++clock_;
    }
    committed_ = step;
  }

  size_t evictable(bool flight) { return unlocked(flight).size(); }
  const std::map<Key, Entry>& entries() const { return entries_; }
  bool in_flight(const Entry& entry) const { return entry.stamp > committed_; }

 private:
  using Iterator = std::map<Key, Entry>::iterator;

  Key key(CacheNamespace ns, const Tokens& tokens, size_t page) const {
    return {ns, Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((page + 1) * page_size_))};
  }
  Entry& at(CacheNamespace ns, const Tokens& tokens, size_t page) { return entries_.at(key(ns, tokens, page)); }
  void stamp(Entry& entry, uint64_t last_step) {
    newest_ = std::max(newest_, last_step);
    if (last_step > committed_ || in_flight(entry)) entry.stamp = newest_;
  }
  std::vector<Iterator> unlocked(bool flight) {
    std::vector<Iterator> found;
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.locks == 0 && in_flight(it->second) == flight) found.push_back(it);
    }
    std::sort(found.begin(), found.end(), [](Iterator a, Iterator b) { return a->second.use < b->second.use; });
    return found;
  }

  size_t page_size_;
  std::map<Key, Entry> entries_;
  uint64_t clock_ = 0;
  uint64_t committed_ = 0;
  uint64_t newest_ = 0;
};

struct Locked {
  CacheNamespace ns;
  Tokens tokens;
  PrefixHandle handle;
};

class RadixFuzz : public testing::TestWithParam<int32_t> {
 protected:
  static constexpr int32_t kPages = 48;

  RadixFuzz() : h(kPages, GetParam()), model(h.page_size), random(static_cast<uint32_t>(17 + GetParam())) {}

  int32_t below(int32_t bound) { return static_cast<int32_t>(random() % static_cast<uint32_t>(bound)); }

  /// Up to 12 pages, each of one of three kinds that differ in their first token or in their last; often no whole number of pages.
  Tokens random_tokens() {
    Tokens tokens;
    for (int32_t page = below(13); page > 0; --page) {
      const size_t begin = tokens.size();
      tokens.resize(begin + h.page_size, 5);
      const int32_t kind = below(5);
      if (kind == 3) tokens[begin] = 6;
      if (kind == 4) tokens.back() = 7;
    }
    if (below(2) == 0) tokens.resize(tokens.size() + static_cast<size_t>(below(GetParam())), 5);
    return tokens;
  }
  /// The last launched step of some request: mostly the newest, or one that may have committed.
  uint64_t random_stamp() { return launched - std::min<uint64_t>(launched, random() % 4 == 0 ? random() % 4 : 0); }
  static Tokens cut(const Tokens& tokens, size_t count) { return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)}; }

  void match_one() {
    const CacheNamespace ns = random() % 2;
    const Tokens tokens = random_tokens();
    ASSERT_EQ(static_cast<size_t>(h.cache.matched_pages(ns, tokens)), model.matched(ns, tokens));
    const PrefixHandle handle = h.match(tokens, ns);
    ASSERT_EQ(h.matched, model.match(ns, tokens));
    ASSERT_EQ(static_cast<size_t>(handle.num_pages), h.matched.size());
    if (below(2) == 0) return;
    locked.push_back({ns, cut(tokens, h.matched.size() * h.page_size), handle});
    h.cache.lock(handle);
    model.lock(ns, locked.back().tokens);
  }

  void unlock_one() {
    if (locked.empty()) return;
    std::swap(locked[static_cast<size_t>(below(static_cast<int32_t>(locked.size())))], locked.back());
    const uint64_t stamp = random_stamp();
    h.cache.unlock(locked.back().handle, stamp);
    model.unlock(locked.back().ns, locked.back().tokens, stamp);
    locked.pop_back();
  }

  void insert_one() {
    const CacheNamespace ns = random() % 2;
    const Tokens tokens = random_tokens();
    const size_t count = tokens.size() / h.page_size;
    evict_some(std::max(0, static_cast<int32_t>(count) - h.pages.free()));
    if (static_cast<size_t>(h.pages.free()) < count) return;
    const uint64_t stamp = random_stamp();
    const size_t existing = model.matched(ns, tokens);
    const auto insertion = h.insert(tokens, stamp, ns);
    const Pages tree = model.insert(ns, tokens, h.own, stamp);
    ASSERT_EQ(static_cast<size_t>(insertion.existing_pages), existing);
    ASSERT_EQ(static_cast<size_t>(insertion.handle.num_pages), count);
    ASSERT_EQ(h.duplicates.size(), existing);
    for (size_t i = 0; i < existing; ++i) {
      ASSERT_EQ(h.duplicates[i].page_index, static_cast<int32_t>(i));
      ASSERT_EQ(h.duplicates[i].own_page, h.own[i]);
      ASSERT_EQ(h.duplicates[i].tree_page, tree[i]);
      h.pages.retire({&h.own[i], 1}, stamp);
    }
    if (below(3) > 0) return;
    locked.push_back({ns, cut(tokens, count * h.page_size), insertion.handle});
    h.cache.lock(insertion.handle);
    model.lock(ns, locked.back().tokens);
  }

  void evict_some(int32_t count) {
    const auto gone = model.evict(static_cast<size_t>(count));
    int32_t freed = 0;
    const int32_t returned = h.cache.evict(count);
    for (const auto& [page, stamp] : gone) {
      const bool flight = stamp > committed;
      freed += flight ? 0 : 1;
      ASSERT_EQ(h.pages.state(page), flight ? State::kRetired : State::kFree) << "page " << page;
    }
    ASSERT_EQ(returned, freed);
  }

  void compare() {
    ASSERT_EQ(static_cast<size_t>(h.cache.cached_pages()), model.entries().size());
    ASSERT_EQ(static_cast<size_t>(h.cache.evictable_committed_pages()), model.evictable(false));
    ASSERT_EQ(static_cast<size_t>(h.cache.evictable_pages()), model.evictable(false) + model.evictable(true));
    ASSERT_EQ(h.pages.free() + h.pages.cached() + h.pages.retired(), kPages) << "the harness owns nothing between operations";
    ASSERT_NO_THROW(h.check());
    for (const auto& [key, entry] : model.entries()) {
      ASSERT_EQ(h.pages.state(entry.page), State::kCached);
      ASSERT_EQ(static_cast<size_t>(h.cache.matched_pages(key.first, key.second)), key.second.size() / h.page_size);
    }
  }

  RadixHarness h;
  Model model;
  std::mt19937 random;
  std::vector<Locked> locked;
  uint64_t launched = 0;
  uint64_t committed = 0;
};

TEST_P(RadixFuzz, EqualsTheModel) {
  for (int operation = 0; operation < 35000; ++operation) {
    SCOPED_TRACE(operation);
    switch (below(10)) {
      case 0:
      case 1:
        match_one();
        break;
      case 2:
      case 3:
      case 4:
        insert_one();
        break;
      case 5:
        unlock_one();
        break;
      case 6:
        evict_some(below(3) == 0 ? below(kPages) : below(4));
        break;
      case 7:
        if (locked.size() > 3) unlock_one();
        break;
      case 8:
        if (launched < committed + 2) ++launched;
        break;
      case 9:
        if (committed == launched) break;
        ++committed;
        h.commit(committed);
        model.commit(committed);
        break;
    }
    if (HasFatalFailure()) return;
    if (operation % 8 == 0) compare();
    if (HasFatalFailure()) return;
  }
  while (!locked.empty()) unlock_one();
  h.commit(launched);
  h.cache.reset();
  h.check();
  EXPECT_EQ(h.pages.free(), kPages);
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RadixFuzz, testing::Values(1, 4, 16));

}  // namespace
}  // namespace minisgl
