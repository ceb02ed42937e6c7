#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "kvcache/id_allocator.h"
#include "kvcache/prefix_cache.h"

namespace minisgl {
namespace {

using State = PageAllocator::State;

std::vector<int32_t> take(PageAllocator& pages, size_t count) {
  std::vector<int32_t> ids(count);
  EXPECT_TRUE(pages.allocate(ids));
  return ids;
}

TEST(PageStates, CachedIsAStateOfItsOwn) {
  PageAllocator pages("page", 4);
  const auto ids = take(pages, 3);
  pages.cache({ids.data(), 2});
  EXPECT_EQ(pages.free(), 1);
  EXPECT_EQ(pages.owned(), 1);
  EXPECT_EQ(pages.cached(), 2);
  EXPECT_EQ(pages.retired(), 0);
  pages.check_integrity();
  pages.retire_cached({ids.data(), 1}, 1);
  EXPECT_EQ(pages.cached(), 1);
  EXPECT_EQ(pages.retired(), 1);
  EXPECT_EQ(pages.state(ids[0]), State::kRetired);
  pages.commit(1);
  EXPECT_EQ(pages.state(ids[0]), State::kFree);
  EXPECT_EQ(pages.free(), 2);
  pages.check_integrity();
}

TEST(PageStates, NoMoveThatTheContractDoesNotName) {
  PageAllocator pages("page", 3);
  const auto ids = take(pages, 2);
  pages.cache({ids.data(), 1});
  EXPECT_THROW(pages.cache({ids.data(), 1}), Error) << "cached twice";
  EXPECT_THROW(pages.retire({ids.data(), 1}, 0), Error) << "a request retires a page of the cache";
  EXPECT_THROW(pages.retire_cached({ids.data() + 1, 1}, 0), Error) << "the cache retires a page of a request";
  const int32_t free_page = 2;
  EXPECT_THROW(pages.cache({&free_page, 1}), Error) << "a free page is cached";
  pages.retire_cached({ids.data(), 1}, 5);
  EXPECT_THROW(pages.retire_cached({ids.data(), 1}, 5), Error) << "retired twice";
  EXPECT_THROW(pages.cache({ids.data(), 1}), Error) << "a retired page is cached";
  const int32_t outside = 3;
  EXPECT_THROW(pages.cache({&outside, 1}), Error);
}

TEST(PageStates, StampsRetireInAnyOrder) {
  PageAllocator pages("page", 6);
  const auto ids = take(pages, 6);
  pages.retire({ids.data(), 2}, 9);
  pages.retire({ids.data() + 2, 2}, 7);
  pages.retire({ids.data() + 4, 2}, 8);
  pages.commit(7);
  EXPECT_EQ(pages.free(), 2);
  EXPECT_EQ(pages.state(ids[2]), State::kFree);
  pages.commit(8);
  EXPECT_EQ(pages.free(), 4);
  EXPECT_EQ(pages.state(ids[0]), State::kRetired);
  pages.commit(9);
  EXPECT_EQ(pages.free(), 6);
  pages.check_integrity();
}

TEST(NaivePrefixCache, TakesNothingAndMatchesNothing) {
  PageAllocator pages("page", 4);
  const auto cache = make_prefix_cache(PrefixCacheKind::kNaive, pages, 2);
  EXPECT_EQ(cache->name(), "naive");
  const auto ids = take(pages, 2);
  const std::vector<int32_t> tokens{1, 2, 3, 4};
  std::vector<PrefixCache::Duplicate> duplicates;
  const auto insertion = cache->insert(0, tokens, ids, 3, duplicates);
  EXPECT_TRUE(insertion.handle.empty());
  EXPECT_EQ(insertion.existing_pages, 0);
  EXPECT_TRUE(duplicates.empty());
  cache->lock(insertion.handle);
  cache->unlock(insertion.handle, 3);
  std::vector<int32_t> matched;
  EXPECT_TRUE(cache->match(0, tokens, matched).empty());
  EXPECT_TRUE(matched.empty());
  EXPECT_EQ(cache->matched_pages(0, tokens), 0);
  EXPECT_EQ(cache->cached_pages(), 0);
  EXPECT_EQ(cache->evict(4), 0);
  EXPECT_EQ(pages.owned(), 2) << "all pages stay the caller's";
  cache->check_integrity();
  pages.cache(ids);
  EXPECT_THROW(cache->check_integrity(), Error) << "pages that no cache holds";
}

}  // namespace
}  // namespace minisgl
