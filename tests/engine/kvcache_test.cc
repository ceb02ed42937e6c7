#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "kvcache/id_allocator.h"
#include "kvcache/kv_pool.h"
#include "kvcache/sequence_tables.h"

namespace minisgl {
namespace {

TEST(IdAllocator, HandsOutEachIdOnceAndThenRefuses) {
  PageAllocator pages("page", 5);
  std::vector<int32_t> ids(5);
  ASSERT_TRUE(pages.allocate(ids));
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  int32_t one = 77;
  EXPECT_FALSE(pages.allocate({&one, 1}));
  EXPECT_EQ(one, 77);
  EXPECT_EQ(pages.free(), 0);
  EXPECT_EQ(pages.owned(), 5);
  pages.check_integrity();
}

TEST(IdAllocator, RefusesAllOrNothing) {
  PageAllocator pages("page", 3);
  std::vector<int32_t> ids(4);
  EXPECT_FALSE(pages.allocate(ids));
  EXPECT_EQ(pages.free(), 3);
}

TEST(IdAllocator, RetiredUntilTheLastStepThatReferencesItCommits) {
  PageAllocator pages("page", 4);
  std::vector<int32_t> ids(2);
  ASSERT_TRUE(pages.allocate(ids));
  pages.commit(6);
  pages.retire(ids, 8);
  EXPECT_EQ(pages.retired(), 2);
  EXPECT_EQ(pages.free(), 2);
  pages.commit(7);
  EXPECT_EQ(pages.retired(), 2);
  pages.check_integrity();
  pages.commit(8);
  EXPECT_EQ(pages.retired(), 0);
  EXPECT_EQ(pages.free(), 4);
  pages.check_integrity();
}

TEST(IdAllocator, FreeAtOnceWhenTheStepHasCommitted) {
  PageAllocator pages("page", 2);
  std::vector<int32_t> ids(1);
  ASSERT_TRUE(pages.allocate(ids));
  pages.commit(3);
  pages.retire(ids, 3);
  EXPECT_EQ(pages.free(), 2);
}

TEST(IdAllocator, ReusesWhatWasTouchedLast) {
  PageAllocator pages("page", 100);
  std::vector<int32_t> first(3);
  ASSERT_TRUE(pages.allocate(first));
  pages.retire(first, 0);
  std::vector<int32_t> second(3);
  ASSERT_TRUE(pages.allocate(second));
  EXPECT_EQ(first, second);
}

TEST(IdAllocator, RefusesToRetireWhatIsNotOwned) {
  PageAllocator pages("page", 2);
  std::vector<int32_t> ids{1};
  EXPECT_THROW(pages.retire(ids, 0), Error);
  ids[0] = 2;
  EXPECT_THROW(pages.retire(ids, 0), Error);
}

TEST(KvPool, LayersHaveTheDummyPageAndTheStatedLayout) {
  for (const int page_size : {1, 3, 16}) {
    KvPool pool({.layers = {0, 1}, .page_size = page_size, .kv_heads = 2, .head_dim = 6, .dtype = DType::kBFloat16}, 7, {});
    EXPECT_EQ(pool.num_pages(), 7);
    EXPECT_EQ(pool.dummy_page(), 7);
    ASSERT_EQ(pool.layers().size(), 2u);
    EXPECT_EQ(pool.layers()[0].num_pages, 8);
    EXPECT_NE(pool.layers()[0].data, pool.layers()[1].data);
    EXPECT_EQ(pool.group().layer_page_bytes(), static_cast<size_t>(2 * 2 * page_size * 6 * 2));
    EXPECT_EQ(pool.bytes(), 8 * 2 * pool.group().layer_page_bytes());
  }
}

TEST(KvPool, CopiesAndZeroesOnePageInEveryLayer) {
  KvPool pool({.layers = {0, 1}, .page_size = 3, .kv_heads = 1, .head_dim = 2, .dtype = DType::kFloat32}, 3, {});
  const size_t bytes = pool.group().layer_page_bytes();
  const auto page = [&](size_t layer, size_t index) { return static_cast<unsigned char*>(pool.layers()[layer].data) + index * bytes; };
  for (size_t layer : {0u, 1u}) {
    for (size_t p = 0; p < 4; ++p) std::memset(page(layer, p), static_cast<int>(16 * layer + p + 1), bytes);
  }
  pool.copy_page(2, 0);
  pool.zero_page(1);
  for (size_t layer : {0u, 1u}) {
    const auto all = [&](size_t p, size_t value) {
      return std::all_of(page(layer, p), page(layer, p) + bytes, [&](unsigned char c) { return c == value; });
    };
    EXPECT_TRUE(all(0, 16 * layer + 3));
    EXPECT_TRUE(all(1, 0));
    EXPECT_TRUE(all(2, 16 * layer + 3));
    EXPECT_TRUE(all(3, 16 * layer + 4)) << "the dummy page is nobody's business";
  }
}

TEST(PageTable, PaddingRowPointsAtTheDummyPage) {
  PageTable table(4, 6, 9, {});
  EXPECT_EQ(table.dummy_row(), 4);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(table.row(4)[i], 9);
  EXPECT_EQ(table.row(0)[0], 0);
}

}  // namespace
}  // namespace minisgl
