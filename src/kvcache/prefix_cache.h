#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kvcache/id_allocator.h"

namespace minisgl {

/// Separates sequences whose tokens are equal but whose keys and values are not, or must not be shared: an adapter, a cache salt. Equal
/// ids mean equal namespaces, so they are numbered by whoever knows them, never hashed. 0 is the namespace of everything else.
using CacheNamespace = uint64_t;

/// A prefix in the cache: the path from the root to a node, num_pages whole pages long. The default value is the empty prefix, which needs
/// no lock and whose lock() and unlock() do nothing.
///
/// A locked handle stays valid until it is unlocked, whatever else happens to the tree (a split keeps it). One that is not locked is valid
/// until the next evict() or reset(); lock() of a handle that was evicted throws Error(kInternal).
struct PrefixHandle {
  int32_t node = -1;
  uint32_t generation = 0;
  int32_t num_pages = 0;

  bool empty() const { return num_pages == 0; }
};

/// Remembers which pages hold the keys and values of which tokens, so that a request that begins like an earlier one does not compute them
/// again. The rule numbers are those of docs/contract.md.
///
/// Everything is counted in whole pages. A key is (namespace, tokens), copied; a hit is verified token by token (rule 5). The cache moves
/// pages between the states owned, cached, retired and free of the allocator that it is given; pages it did not take stay the caller's.
/// Which prefix is evicted first depends only on the order of calls (rule 12). Not thread safe: it belongs to the scheduler's thread.
///
/// What the scheduler does with it:
///
///     admission    handle = match(ns, prompt without its last token, pages);  lock(handle)
///     commit       in = insert(ns, committed tokens, row's pages, L, duplicates)
///                  lock(in.handle);  unlock(handle, L);  handle = in.handle
///                  for each duplicate: page delta to tree_page in the next plan, then pages.retire(own_page, L)       (rule 3)
///     end          the same insert without its lock;  unlock(handle, L);  pages.retire(row's pages beyond in.handle.num_pages, L)
///     no page      evict(missing)
///     step done    pages.commit(step);  commit(step)
///
/// with L the last launched step that references the row or its pages (rule 2).
class PrefixCache {
 public:
  virtual ~PrefixCache() = default;

  virtual std::string_view name() const = 0;

  /// The longest cached prefix of `tokens`, in whole pages, never more than tokens.size() / page_size. A caller that must compute at least
  /// one token passes one token less (rule 5). Appends the prefix's pages to `pages`. Counts as a use of the prefix; may split a node.
  virtual PrefixHandle match(CacheNamespace ns, std::span<const int32_t> tokens, std::vector<int32_t>& pages) = 0;
  /// handle.num_pages of the match() that would follow. Changes nothing: for policies that look at many waiting requests.
  virtual int32_t matched_pages(CacheNamespace ns, std::span<const int32_t> tokens) const = 0;

  /// Keeps every page of the prefix from eviction until as many unlock()s.
  virtual void lock(const PrefixHandle& handle) = 0;
  /// `last_step` is the last launched step that may read the prefix's pages. Until it commits the pages count as used, and if they are
  /// evicted they are retired under it. A stamp older than one already given but not yet committed is raised to that one.
  virtual void unlock(const PrefixHandle& handle, uint64_t last_step) = 0;

  /// A page of the caller that holds tokens which were already in the cache, as `tree_page`: the first writer won.
  struct Duplicate {
    int32_t page_index;  ///< position in the sequence, in pages
    int32_t own_page;    ///< still owned by the caller
    int32_t tree_page;   ///< cached
  };
  struct Insertion {
    PrefixHandle handle;         ///< covers the inserted tokens; its pages are the tree's, all others of the call stay the caller's
    int32_t existing_pages = 0;  ///< how many leading pages were in the cache before
  };
  /// Makes the whole pages of `tokens` matchable: pages[i] holds tokens [i * page_size, (i + 1) * page_size), written by steps that have
  /// committed (rule 4). Pages beyond the last whole one are ignored. Of those that were already there, the ones that are not the tree's
  /// own are appended to `duplicates`; the new ones, which the caller must own, become the tree's. The whole prefix is stamped as unlock()
  /// does: a launched step may still read it. The handle is not locked. With the naive cache nothing is taken and the handle is empty.
  virtual Insertion insert(CacheNamespace ns, std::span<const int32_t> tokens, std::span<const int32_t> pages, uint64_t last_step,
                           std::vector<Duplicate>& duplicates) = 0;

  /// Takes min(num_pages, evictable_pages()) pages out of the cache, exactly: the ends of the least recently used prefixes, those no
  /// launched step may read first. Pages whose stamp has committed become free, others retired. Returns how many became free.
  virtual int32_t evict(int32_t num_pages) = 0;
  /// The results of `step` and of every earlier one have been handled. Call the allocator's commit() too.
  virtual void commit(uint64_t step) = 0;
  /// Evicts everything. Throws Error(kInternal) if something is locked.
  virtual void reset() = 0;

  virtual int32_t cached_pages() const = 0;
  /// Pages that evict() can take: those of no locked prefix.
  virtual int32_t evictable_pages() const = 0;
  /// The part of evictable_pages() that becomes free at once.
  virtual int32_t evictable_committed_pages() const = 0;
  int32_t protected_pages() const { return cached_pages() - evictable_pages(); }

  /// Recounts everything and compares it with the counters, the allocator's page states and the invariants of the structure. Throws
  /// Error(kInternal). Linear in the size of the cache: for tests and debug builds.
  virtual void check_integrity() const = 0;
};

enum class PrefixCacheKind { kNaive, kRadix };

/// kNaive keeps nothing and matches nothing. kRadix: see RadixPrefixCache. `pages` outlives the cache, and no one else moves its pages
/// into or out of the state cached. page_size >= 1.
std::unique_ptr<PrefixCache> make_prefix_cache(PrefixCacheKind kind, PageAllocator& pages, int32_t page_size);

}  // namespace minisgl
