#include "kvcache/radix_prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "kvcache/prefix_cache_harness.h"

namespace minisgl {
namespace {

using State = PageAllocator::State;

Tokens counting(int32_t first, size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// --- match and insert ------------------------------------------------------------------------------------------------------------------

TEST(RadixPrefixCache, SharedBeginningsAreStoredOnce) {
  RadixHarness h(16, 1);
  EXPECT_EQ(h.insert({1, 2, 3, 4}).existing_pages, 0);
  const auto second = h.insert({1, 2, 5});
  EXPECT_EQ(second.existing_pages, 2);
  EXPECT_EQ(second.handle.num_pages, 3);
  EXPECT_EQ(h.cache.num_nodes(), 3) << "[1,2] with [3,4] and [5]";
  EXPECT_EQ(h.match({1, 2, 3, 9}).num_pages, 3);
  EXPECT_EQ(h.matched, (Pages{0, 1, 2}));
  EXPECT_EQ(h.cache.num_nodes(), 4) << "[3,4] was split";
  EXPECT_EQ(h.match({1, 2, 5, 6}).num_pages, 3);
  EXPECT_EQ(h.matched, (Pages{0, 1, 6}));
  EXPECT_EQ(h.cache.evictable_pages(), 5);
  h.check();
}

TEST(RadixPrefixCache, CallerLearnsTheTreesPagesForItsDuplicates) {
  RadixHarness h(16, 1);
  h.insert({1, 2, 3, 4});                   // pages 0..3
  const auto second = h.insert({1, 2, 5});  // pages 4..6
  EXPECT_EQ(second.existing_pages, 2);
  ASSERT_EQ(h.duplicates.size(), 2u);
  EXPECT_EQ(h.duplicates[0].page_index, 0);
  EXPECT_EQ(h.duplicates[0].own_page, 4);
  EXPECT_EQ(h.duplicates[0].tree_page, 0);
  EXPECT_EQ(h.duplicates[1].page_index, 1);
  EXPECT_EQ(h.duplicates[1].own_page, 5);
  EXPECT_EQ(h.duplicates[1].tree_page, 1);
  EXPECT_EQ(h.pages.state(4), State::kOwned) << "a duplicate stays the caller's";
  EXPECT_EQ(h.pages.state(6), State::kCached);
}

TEST(RadixPrefixCache, PagesThatAreAlreadyTheTreesAreNoDuplicates) {
  RadixHarness h(16, 2);
  h.insert({1, 2, 3, 4});
  Pages row = h.own;
  const Pages more = h.take(1);
  row.insert(row.end(), more.begin(), more.end());
  h.duplicates.clear();
  const auto longer = h.cache.insert(0, Tokens{1, 2, 3, 4, 5, 6}, row, 0, h.duplicates);
  EXPECT_EQ(longer.existing_pages, 2);
  EXPECT_EQ(longer.handle.num_pages, 3);
  EXPECT_TRUE(h.duplicates.empty());
  EXPECT_EQ(h.cache.cached_pages(), 3);
  h.check();
}

TEST(RadixPrefixCache, WholePagesOnly) {
  RadixHarness h(16, 4);
  EXPECT_EQ(h.insert(counting(0, 10)).handle.num_pages, 2);
  EXPECT_EQ(h.cache.cached_pages(), 2);
  EXPECT_EQ(h.match(counting(0, 7)).num_pages, 1);
  EXPECT_EQ(h.match(counting(0, 3)).num_pages, 0);
  EXPECT_EQ(h.match({}).num_pages, 0);
  Tokens differs_late = counting(0, 8);
  differs_late[7] = 99;
  EXPECT_EQ(h.match(differs_late).num_pages, 1) << "a page matches as a whole or not at all";
  h.check();
}

TEST(RadixPrefixCache, NeverMatchesMoreThanAsked) {
  for (const int32_t page_size : {1, 3, 4, 16}) {
    RadixHarness h(64, page_size);
    const Tokens prompt = counting(0, static_cast<size_t>(page_size) * 6);
    h.keep(prompt);
    for (size_t length = 0; length <= prompt.size(); ++length) {
      const Tokens asked(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length));
      const auto expected = static_cast<int32_t>(length / static_cast<size_t>(page_size));
      EXPECT_EQ(h.cache.matched_pages(0, asked), expected);
      EXPECT_EQ(h.match(asked).num_pages, expected);
      EXPECT_EQ(h.matched.size(), static_cast<size_t>(expected));
    }
    h.check();
  }
}

TEST(RadixPrefixCache, LookingChangesNothing) {
  RadixHarness h(8, 1);
  h.keep({1, 2, 3});
  h.keep({7, 8});
  EXPECT_EQ(h.cache.matched_pages(0, Tokens{1, 2, 9}), 2);
  EXPECT_EQ(h.cache.num_nodes(), 2) << "no split";
  EXPECT_EQ(h.evict(3), (Pages{0, 1, 2})) << "and no use";
}

TEST(RadixPrefixCache, NamespacesShareNothing) {
  RadixHarness h(16, 2);
  h.keep({1, 2, 3, 4}, 0, 0);
  EXPECT_EQ(h.match({1, 2, 3, 4}, 5).num_pages, 0);
  EXPECT_EQ(h.insert({1, 2, 3, 4}, 0, 5).existing_pages, 0);
  EXPECT_EQ(h.match({1, 2, 3, 4}, 5).num_pages, 2);
  EXPECT_EQ(h.matched, (Pages{2, 3}));
  EXPECT_EQ(h.match({1, 2, 3, 4}, 0).num_pages, 2);
  EXPECT_EQ(h.matched, (Pages{0, 1}));
  h.check();
}

TEST(RadixPrefixCache, KeysAreCopies) {
  RadixHarness h(8, 1);
  Tokens tokens{1, 2, 3};
  h.insert(tokens);
  tokens = {9, 9, 9};
  EXPECT_EQ(h.match({1, 2, 3}).num_pages, 3);
}

/// Among 200,000 keys some 5 pairs have equal 32-bit hashes: a cache that trusted its hash would take one for the other. They differ in
/// their tokens, in their namespace, or in what comes before their last page.
TEST(RadixPrefixCache, EqualHashesAreNoHit) {
  constexpr size_t kKeys = 200000;
  std::mt19937_64 random(3);
  RadixHarness tokens_differ(kKeys, 2), namespaces_differ(kKeys, 2), parents_differ(2 * kKeys, 2);
  std::vector<Tokens> tokens(kKeys);
  std::vector<CacheNamespace> namespaces(kKeys);
  for (size_t i = 0; i < kKeys; ++i) {
    tokens[i] = {static_cast<int32_t>(random()), static_cast<int32_t>(random()), 1, 2};
    namespaces[i] = random();
    const Tokens first(tokens[i].begin(), tokens[i].begin() + 2);
    ASSERT_EQ(tokens_differ.insert(first).existing_pages, 0) << i;
    ASSERT_EQ(namespaces_differ.insert({1, 2}, 0, namespaces[i]).existing_pages, 0) << i;
    ASSERT_EQ(parents_differ.insert(first).existing_pages, 0) << i;
  }
  for (size_t i = 0; i < kKeys; ++i) {
    const auto page = static_cast<int32_t>(i);
    const Tokens first(tokens[i].begin(), tokens[i].begin() + 2);
    tokens_differ.match(first);
    ASSERT_EQ(tokens_differ.matched, Pages{page});
    namespaces_differ.match({1, 2}, namespaces[i]);
    ASSERT_EQ(namespaces_differ.matched, Pages{page});
    Pages row{page};
    parents_differ.own = parents_differ.take(1);
    row.push_back(parents_differ.own[0]);
    ASSERT_EQ(parents_differ.cache.insert(0, tokens[i], row, 0, parents_differ.duplicates).existing_pages, 1) << i;
  }
}

// --- locks and eviction ----------------------------------------------------------------------------------------------------------------

TEST(RadixPrefixCache, EvictsTheEndsOfTheLeastRecentlyUsedAndNothingLocked) {
  RadixHarness h(16, 1);
  h.keep({1, 2, 3, 4});                        // pages 0..3
  const auto second = h.insert({1, 2, 5, 6});  // 4..7, of which 4 and 5 are duplicates
  EXPECT_EQ(second.existing_pages, 2);
  h.insert({7, 8});  // 8, 9
  const PrefixHandle handle = h.match({1, 2, 3, 9});
  EXPECT_EQ(h.matched, (Pages{0, 1, 2}));
  h.cache.lock(handle);
  EXPECT_EQ(h.cache.evictable_pages(), 5);
  EXPECT_EQ(h.cache.protected_pages(), 3);
  EXPECT_EQ(h.evict(2), (Pages{3, 7})) << "[4], the oldest, then the end of [5,6]: as many as asked, no more";
  EXPECT_EQ(h.evict(1), (Pages{6}));
  EXPECT_EQ(h.evict(100), (Pages{8, 9}));
  EXPECT_EQ(h.evict(1), Pages{});
  EXPECT_EQ(h.cache.cached_pages(), 3);
  EXPECT_EQ(h.cache.num_nodes(), 2) << "[1,2] and [3]";
  h.check();
  h.cache.unlock(handle, 0);
  h.cache.reset();
  EXPECT_EQ(h.cache.cached_pages(), 0);
  h.check();
}

TEST(RadixPrefixCache, UseMovesAPrefixToTheEndOfTheQueue) {
  RadixHarness h(16, 1);
  h.keep({1, 2, 3});  // 0..2
  h.keep({7, 8});     // 3, 4
  h.keep({4, 5});     // 5, 6
  const PrefixHandle handle = h.match({7, 8});
  h.cache.lock(handle);
  EXPECT_EQ(h.cache.evictable_pages(), 5);
  EXPECT_EQ(h.cache.protected_pages(), 2);
  EXPECT_EQ(h.evict(3), (Pages{0, 1, 2}));
  h.cache.unlock(handle, 0);
  EXPECT_EQ(h.evict(2), (Pages{5, 6})) << "[4,5] is older than the use of [7,8]";
  h.check();
}

TEST(RadixPrefixCache, MatchOfAPartLeavesTheRestAsOldAsItWas) {
  RadixHarness h(16, 1);
  h.keep({1, 2, 3, 4});  // 0..3
  h.keep({7, 8});        // 4, 5
  h.match({1, 2});
  EXPECT_EQ(h.evict(2), (Pages{2, 3}));
  EXPECT_EQ(h.evict(2), (Pages{4, 5}));
  EXPECT_EQ(h.evict(2), (Pages{0, 1}));
}

TEST(RadixPrefixCache, HandleSurvivesSplitsOfItsPath) {
  RadixHarness h(16, 1);
  const PrefixHandle handle = h.keep({1, 2, 3, 4, 5, 6});
  h.cache.lock(handle);
  h.match({1, 2, 3, 9});
  h.match({1, 9});
  h.keep({1, 2, 3, 4, 9});
  EXPECT_EQ(h.cache.num_nodes(), 5);
  h.check();
  EXPECT_EQ(h.cache.protected_pages(), 6);
  h.evict(100);
  EXPECT_EQ(h.cache.cached_pages(), 6);
  h.cache.unlock(handle, 0);
  EXPECT_EQ(h.cache.protected_pages(), 0);
  h.check();
}

TEST(RadixPrefixCache, LocksNest) {
  RadixHarness h(8, 1);
  const PrefixHandle whole = h.keep({1, 2, 3});
  h.cache.lock(whole);
  const PrefixHandle part = h.match({1, 2});
  h.cache.lock(part);
  h.cache.unlock(whole, 0);
  EXPECT_EQ(h.cache.protected_pages(), 2);
  EXPECT_EQ(h.evict(3), (Pages{2}));
  h.cache.unlock(part, 0);
  EXPECT_EQ(h.cache.protected_pages(), 0);
  h.check();
}

TEST(RadixPrefixCache, EvictionTakesExactlyWhatIsAskedFor) {
  for (const int32_t page_size : {1, 4, 16}) {
    RadixHarness h(64, page_size);
    const Tokens prompt = counting(0, static_cast<size_t>(page_size) * 40);
    h.keep(prompt);
    for (const int32_t count : {0, 1, 7, 2}) {
      const int32_t before = h.cache.cached_pages();
      EXPECT_EQ(h.cache.evict(count), count);
      EXPECT_EQ(h.cache.cached_pages(), before - count);
      EXPECT_EQ(h.match(prompt).num_pages, before - count) << "the beginning stays";
      h.check();
    }
  }
}

TEST(RadixPrefixCache, EvictedPrefixCanBeInsertedAgain) {
  RadixHarness h(4, 2);
  for (int round = 0; round < 5; ++round) {
    h.keep({1, 2, 3, 4, 5, 6, 7, 8});
    EXPECT_EQ(h.cache.evict(1), 1);
    h.own = h.take(1);
    EXPECT_EQ(h.cache.matched_pages(0, Tokens{1, 2, 3, 4, 5, 6, 7, 8}), 3);
    h.pages.retire(h.own, 0);
    h.cache.reset();
    h.check();
    EXPECT_EQ(h.pages.free(), 4);
  }
}

TEST(RadixPrefixCache, ResetRefusesWhileSomethingIsLocked) {
  RadixHarness h(4, 1);
  const PrefixHandle handle = h.keep({1, 2});
  h.cache.lock(handle);
  EXPECT_THROW(h.cache.reset(), Error);
  h.cache.unlock(handle, 0);
  h.cache.reset();
  EXPECT_EQ(h.pages.free(), 4);
}

// --- stamps ----------------------------------------------------------------------------------------------------------------------------

TEST(RadixPrefixCache, EvictedPageIsRetiredUntilItsStampCommits) {
  RadixHarness h(4, 1);
  const PrefixHandle handle = h.keep({1, 2});
  h.cache.lock(handle);
  h.cache.unlock(handle, 5);
  EXPECT_EQ(h.cache.evictable_pages(), 2);
  EXPECT_EQ(h.cache.evictable_committed_pages(), 0);
  EXPECT_EQ(h.cache.evict(1), 0) << "evicted, but not free";
  EXPECT_EQ(h.pages.state(1), State::kRetired);
  h.commit(4);
  EXPECT_EQ(h.pages.state(1), State::kRetired);
  EXPECT_EQ(h.cache.evictable_committed_pages(), 0);
  h.commit(5);
  EXPECT_EQ(h.pages.state(1), State::kFree);
  EXPECT_EQ(h.cache.evictable_committed_pages(), 1);
  EXPECT_EQ(h.cache.evict(1), 1);
  h.check();
}

TEST(RadixPrefixCache, EvictionPrefersWhatNoLaunchedStepReads) {
  RadixHarness h(8, 1);
  const PrefixHandle old = h.keep({1, 2});  // 0, 1
  h.cache.lock(old);
  h.keep({3, 4});  // 2, 3
  h.cache.unlock(old, 9);
  h.match({3, 4});
  EXPECT_EQ(h.cache.evictable_pages(), 4);
  EXPECT_EQ(h.cache.evictable_committed_pages(), 2);
  EXPECT_EQ(h.evict(2), (Pages{2, 3})) << "used later, but by nothing in flight";
  EXPECT_EQ(h.evict(2), (Pages{0, 1}));
  EXPECT_EQ(h.pages.retired(), 2);
  h.check();
}

TEST(RadixPrefixCache, InsertionStampsThePathItExtends) {
  RadixHarness h(8, 1);
  h.keep({1, 2});          // 0, 1, settled
  h.insert({1, 2, 3}, 4);  // duplicates 2, 3; new 4
  EXPECT_EQ(h.cache.evictable_committed_pages(), 0) << "step 4 may read all three";
  h.check();
  EXPECT_EQ(h.evict(3), (Pages{0, 1, 4}));
  EXPECT_EQ(h.pages.retired(), 3);
}

TEST(RadixPrefixCache, StampOfALockedPrefixIsKeptForItsUnlock) {
  RadixHarness h(8, 1);
  const PrefixHandle handle = h.keep({1, 2});
  h.cache.lock(handle);
  h.cache.lock(handle);
  h.cache.unlock(handle, 7);
  h.cache.unlock(handle, 0);  // a request that no launched step references
  EXPECT_EQ(h.cache.evictable_committed_pages(), 0) << "step 7 may still read it";
  h.commit(7);
  EXPECT_EQ(h.cache.evictable_committed_pages(), 2);
  h.check();
}

TEST(RadixPrefixCache, OlderStampAfterANewerOneStaysInOrder) {
  RadixHarness h(8, 1);
  const PrefixHandle first = h.keep({1});
  const PrefixHandle second = h.keep({2});
  h.cache.lock(first);
  h.cache.lock(second);
  h.cache.unlock(first, 8);
  h.cache.unlock(second, 7);
  h.check();
  h.commit(7);
  h.check();
  EXPECT_EQ(h.cache.evictable_committed_pages(), 0) << "raised to 8";
  h.commit(8);
  EXPECT_EQ(h.cache.evictable_committed_pages(), 2);
}

// --- regressions of other engines ------------------------------------------------------------------------------------------------------

/// Two requests compute the same prompt; the second's pages are duplicates. Given back at once they would be handed out while its row
/// still points at them.
TEST(PrefixCacheRegression, DuplicatesOfARunningRequestAreNotHandedOutWhileAStepReadsThem) {
  RadixHarness h(6, 1);
  const PrefixHandle first = h.keep({1, 2, 3}, 1);
  h.cache.lock(first);
  const auto second = h.insert({1, 2, 3}, 1);
  h.cache.lock(second.handle);
  Pages row = h.own;
  ASSERT_EQ(h.duplicates.size(), 3u);
  for (const auto& duplicate : h.duplicates) {
    EXPECT_EQ(row[static_cast<size_t>(duplicate.page_index)], duplicate.own_page);
    row[static_cast<size_t>(duplicate.page_index)] = duplicate.tree_page;
    h.pages.retire({&duplicate.own_page, 1}, 1);
  }
  EXPECT_EQ(row, (Pages{0, 1, 2}));
  EXPECT_EQ(h.pages.free(), 0) << "step 1 reads the duplicates";
  h.commit(1);
  EXPECT_EQ(h.pages.free(), 3);
  h.evict(100);
  for (const int32_t page : row) EXPECT_EQ(h.pages.state(page), State::kCached) << "the row's pages are locked";
  h.check();
}

/// The step in flight still contains a request that has just ended, and reads the pages it inserted at its end.
TEST(PrefixCacheRegression, PagesInsertedByAFinishedRequestAreNotReusedUnderItsLastStep) {
  RadixHarness h(4, 1);
  h.insert({1, 2, 3, 4}, 12);
  EXPECT_EQ(h.cache.evict(4), 0);
  int32_t page = -1;
  EXPECT_FALSE(h.pages.allocate({&page, 1}));
  h.commit(12);
  EXPECT_TRUE(h.pages.allocate({&page, 1}));
}

/// Pool sizes, needs and evictions in tokens left requests without their last page.
TEST(PrefixCacheRegression, EverythingIsCountedInPages) {
  RadixHarness h(8, 16);
  h.keep(counting(0, 16 * 3 + 15));
  EXPECT_EQ(h.cache.cached_pages(), 3);
  EXPECT_EQ(h.cache.evictable_pages(), 3);
  EXPECT_EQ(h.cache.evict(2), 2);
  EXPECT_EQ(h.pages.free(), 7);
  const Pages seven = h.take(7);
  EXPECT_EQ(h.cache.cached_pages(), 1);
  h.check();
}

/// An abort between launch and result released a prefix twice, and made a page both free and cached.
TEST(PrefixCacheRegression, ReleasingTwiceIsAnErrorAndNotACorruption) {
  RadixHarness h(4, 1);
  const auto insertion = h.insert({1, 2});
  const Pages pages = h.own;
  h.cache.lock(insertion.handle);
  EXPECT_THROW(h.pages.retire(pages, 0), Error) << "the tree's, no longer the request's";
  h.cache.unlock(insertion.handle, 0);
  EXPECT_THROW(h.cache.unlock(insertion.handle, 0), Error);
  h.check();
}

/// Prefixes of one request were inserted with another request's pages.
TEST(PrefixCacheRegression, OnlyPagesTheCallerOwnsBecomeTheTrees) {
  RadixHarness h(6, 1);
  h.keep({1, 2});
  std::vector<PrefixCache::Duplicate> duplicates;
  EXPECT_THROW(h.cache.insert(0, Tokens{5, 6}, Pages{0, 1}, 0, duplicates), Error) << "pages of another prefix";
  EXPECT_THROW(h.cache.insert(0, Tokens{5, 6}, Pages{4, 5}, 0, duplicates), Error) << "free pages";
  const Pages own = h.take(2);
  EXPECT_THROW(h.cache.insert(0, Tokens{5, 6}, std::span(own).first(1), 0, duplicates), Error) << "fewer pages than tokens";
  EXPECT_THROW(h.cache.insert(0, Tokens{5, 6}, Pages{own[0], own[0]}, 0, duplicates), Error) << "one page twice";
  EXPECT_EQ(h.cache.matched_pages(0, Tokens{5, 6}), 0);
}

TEST(PrefixCacheRegression, HandleOfAnEvictedPrefixIsRefused) {
  RadixHarness h(4, 1);
  const PrefixHandle whole = h.keep({1, 2});
  h.cache.evict(1);
  EXPECT_THROW(h.cache.lock(whole), Error) << "its end is gone";
  const PrefixHandle part = h.match({1, 2});
  h.cache.evict(1);
  EXPECT_THROW(h.cache.lock(part), Error);
  h.keep({5});
  EXPECT_THROW(h.cache.lock(part), Error) << "the node is another prefix of the same length now";
  h.check();
}

/// An order by the wall clock differs between ranks when times tie; here equal calls give equal evictions.
TEST(PrefixCacheRegression, EvictionOrderDependsOnTheCallsAlone) {
  Pages order[2];
  for (Pages& evicted : order) {
    RadixHarness h(64, 1);
    for (int32_t i = 0; i < 8; ++i) h.keep({i % 4, i, 2 * i, 3});
    h.match({2, 2, 4});
    while (h.cache.cached_pages() > 0) {
      for (const int32_t page : h.evict(1)) evicted.push_back(page);
    }
  }
  EXPECT_EQ(order[0], order[1]);
}

/// A check that compares nothing sees none of these, and one of totals only the first.
TEST(PrefixCacheRegression, IntegrityCheckFindsLostAndDoublyHeldPages) {
  const int32_t page = 1;
  std::vector<PrefixCache::Duplicate> duplicates;
  {
    RadixHarness h(8, 1);
    h.keep({1, 2, 3});
    h.pages.cache(h.take(1));
    EXPECT_THROW(h.cache.check_integrity(), Error) << "a cached page that is not in the tree";
  }
  {
    RadixHarness h(8, 1);
    h.keep({1, 2, 3});
    h.pages.cache(h.take(1));
    h.pages.retire_cached({&page, 1}, 0);
    EXPECT_THROW(h.cache.check_integrity(), Error) << "a free page in the tree";
    h.take(5);
    EXPECT_THROW(h.cache.check_integrity(), Error) << "a request's page in the tree";
  }
  {
    RadixHarness h(8, 1);
    h.keep({1, 2, 3});
    h.pages.cache(h.take(1));
    h.pages.retire_cached({&page, 1}, 0);
    EXPECT_EQ(h.take(1), Pages{page});
    h.cache.insert(0, Tokens{7}, Pages{page}, 0, duplicates);
    EXPECT_THROW(h.cache.check_integrity(), Error) << "one page in two places of the tree";
  }
}

// --- cost ------------------------------------------------------------------------------------------------------------------------------

/// Room freed by evictions is scattered over the cache's memory; what stays must survive when it is moved together.
TEST(RadixPrefixCache, ContentSurvivesCompaction) {
  for (const int32_t page_size : {1, 3, 16}) {
    RadixHarness h(20, page_size);
    const Tokens kept = counting(-500, static_cast<size_t>(page_size) * 5);
    const PrefixHandle handle = h.keep(kept);
    h.cache.lock(handle);
    for (int32_t round = 0; round < 40; ++round) {
      h.match(counting(-500, static_cast<size_t>(page_size) * static_cast<size_t>(1 + round % 5)));  // splits
      const Tokens tokens = counting(1000 * round, static_cast<size_t>(page_size) * 7);
      h.cache.evict(std::max(0, 7 - h.pages.free()));
      h.keep(tokens);
      ASSERT_EQ(h.match(tokens).num_pages, 7);
      ASSERT_EQ(h.match(kept).num_pages, 5);
      ASSERT_EQ(h.matched, (Pages{0, 1, 2, 3, 4}));
      h.check();
    }
  }
}

/// Long shared conversations in chunks: nothing may recurse over the depth of the tree.
TEST(RadixPrefixCache, DeepTreesNeedNoStack) {
  constexpr int32_t kDepth = 20000;
  RadixHarness h(kDepth, 1);
  const Tokens tokens = counting(0, kDepth);
  PrefixHandle handle = h.keep(tokens);
  // Each shorter prefix splits the top node: a chain of nodes of one page.
  for (int32_t length = kDepth; length-- > 1;) {
    h.matched.clear();
    h.cache.match(0, std::span(tokens).first(static_cast<size_t>(length)), h.matched);
  }
  EXPECT_EQ(h.cache.num_nodes(), kDepth);
  h.cache.lock(handle);
  EXPECT_EQ(h.cache.protected_pages(), kDepth);
  h.cache.unlock(handle, 0);
  h.check();
  EXPECT_EQ(h.cache.evict(kDepth), kDepth);
  h.check();
}

/// Counted, not timed: the nodes, pages and hash slots that match, evict and insert touch in trees of 1,000 to 64,000 pages.
TEST(RadixPrefixCache, CostDoesNotGrowWithTheTree) {
  constexpr int32_t kPrefixPages = 16;
  constexpr uint64_t kOperations = 50;
  for (const int32_t prefixes : {62, 500, 4000}) {
    RadixHarness h(prefixes * kPrefixPages, 1);
    const auto prompt = [](int32_t i) {
      Tokens tokens = counting(0, kPrefixPages);
      tokens[0] = i;
      tokens[8] = -i;
      return tokens;
    };
    for (int32_t i = 0; i < prefixes; ++i) h.keep(prompt(i));

    RadixPrefixCache::Work before = h.cache.work();
    for (uint64_t i = 0; i < kOperations; ++i) ASSERT_EQ(h.match(prompt(static_cast<int32_t>(i))).num_pages, kPrefixPages);
    RadixPrefixCache::Work after = h.cache.work();
    EXPECT_EQ(after.pages - before.pages, kOperations * kPrefixPages);
    EXPECT_LE(after.nodes - before.nodes, 3 * kOperations);
    EXPECT_LE(after.probes - before.probes, 4 * kOperations);

    before = h.cache.work();
    EXPECT_EQ(h.cache.evict(10 * kPrefixPages), 10 * kPrefixPages);
    after = h.cache.work();
    EXPECT_EQ(after.pages - before.pages, 10u * kPrefixPages);
    EXPECT_LE(after.nodes - before.nodes, 20u);
    EXPECT_EQ(after.probes - before.probes, 0u);

    before = h.cache.work();
    for (int32_t i = 0; i < 10; ++i) h.keep(prompt(prefixes + i));
    after = h.cache.work();
    EXPECT_EQ(after.pages - before.pages, 10u * kPrefixPages);
    EXPECT_LE(after.nodes - before.nodes, 40u);
    EXPECT_LE(after.probes - before.probes, 40u);
  }
}

}  // namespace
}  // namespace minisgl
