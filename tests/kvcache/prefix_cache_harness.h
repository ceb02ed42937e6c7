#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "kvcache/id_allocator.h"
#include "kvcache/radix_prefix_cache.h"

namespace minisgl {

using Tokens = std::vector<int32_t>;
using Pages = std::vector<int32_t>;

/// A radix cache with its allocator, and the caller's side of the protocol in short.
struct RadixHarness {
  RadixHarness(int32_t num_pages, int32_t page_tokens)
      : page_size(static_cast<size_t>(page_tokens)), pages("page", num_pages), cache(pages, page_tokens) {}

  Pages take(size_t count) {
    Pages taken(count);
    MINISGL_CHECK(pages.allocate(taken), "{} pages asked for, {} free", count, pages.free());
    return taken;
  }
  /// Allocates pages for the whole pages of `tokens` and inserts them. Duplicates are left in `duplicates`, still owned.
  PrefixCache::Insertion insert(const Tokens& tokens, uint64_t last_step = 0, CacheNamespace ns = 0) {
    own = take(tokens.size() / page_size);
    duplicates.clear();
    return cache.insert(ns, tokens, own, last_step, duplicates);
  }
  /// As insert(), with the duplicates given back.
  PrefixHandle keep(const Tokens& tokens, uint64_t last_step = 0, CacheNamespace ns = 0) {
    const PrefixHandle handle = insert(tokens, last_step, ns).handle;
    for (const auto& duplicate : duplicates) pages.retire({&duplicate.own_page, 1}, last_step);
    return handle;
  }
  PrefixHandle match(const Tokens& tokens, CacheNamespace ns = 0) {
    matched.clear();
    return cache.match(ns, tokens, matched);
  }
  void commit(uint64_t step) {
    pages.commit(step);
    cache.commit(step);
  }
  /// Evicts and says which pages left the cache.
  Pages evict(int32_t count) {
    Pages before;
    for (int32_t page = 0; page < pages.count(); ++page) {
      if (pages.state(page) == PageAllocator::State::kCached) before.push_back(page);
    }
    cache.evict(count);
    Pages gone;
    for (const int32_t page : before) {
      if (pages.state(page) != PageAllocator::State::kCached) gone.push_back(page);
    }
    return gone;
  }
  void check() const {
    pages.check_integrity();
    cache.check_integrity();
  }

  size_t page_size;
  PageAllocator pages;
  RadixPrefixCache cache;
  Pages own;
  Pages matched;
  std::vector<PrefixCache::Duplicate> duplicates;
};

}  // namespace minisgl
