#include "kvcache/prefix_cache.h"

#include "base/error.h"
#include "kvcache/radix_prefix_cache.h"

namespace minisgl {

namespace {

class NaivePrefixCache final : public PrefixCache {
 public:
  explicit NaivePrefixCache(const PageAllocator& pages) : pages_(pages) {}

  std::string_view name() const override { return "naive"; }
  PrefixHandle match(CacheNamespace, std::span<const int32_t>, std::vector<int32_t>&) override { return {}; }
  int32_t matched_pages(CacheNamespace, std::span<const int32_t>) const override { return 0; }
  void lock(const PrefixHandle&) override {}
  void unlock(const PrefixHandle&, uint64_t) override {}
  Insertion insert(CacheNamespace, std::span<const int32_t>, std::span<const int32_t>, uint64_t, std::vector<Duplicate>&) override {
    return {};
  }
  int32_t evict(int32_t) override { return 0; }
  void commit(uint64_t) override {}
  void reset() override {}
  int32_t cached_pages() const override { return 0; }
  int32_t evictable_pages() const override { return 0; }
  int32_t evictable_committed_pages() const override { return 0; }
  void check_integrity() const override { MINISGL_CHECK(pages_.cached() == 0, "{} pages are cached by no one", pages_.cached()); }

 private:
  const PageAllocator& pages_;
};

}  // namespace

std::unique_ptr<PrefixCache> make_prefix_cache(PrefixCacheKind kind, PageAllocator& pages, int32_t page_size) {
  if (kind == PrefixCacheKind::kNaive) return std::make_unique<NaivePrefixCache>(pages);
  return std::make_unique<RadixPrefixCache>(pages, page_size);
}

}  // namespace minisgl
