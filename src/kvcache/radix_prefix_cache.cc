#include "kvcache/radix_prefix_cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace minisgl {

namespace {

/// How many tokens at the beginning of `a` and `b` are equal, at most `count`.
size_t common_tokens(const int32_t* a, const int32_t* b, size_t count) {
  constexpr size_t kBlock = 64;
  size_t i = 0;
  while (i + kBlock <= count && std::memcmp(a + i, b + i, kBlock * sizeof(int32_t)) == 0) i += kBlock;
  while (i < count && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

RadixPrefixCache::RadixPrefixCache(PageAllocator& pages, int32_t page_size) : pages_(pages), page_size_(page_size), index_(pages.count()) {
  MINISGL_CHECK(page_size >= 1, "pages of {} tokens", page_size);
  const auto count = static_cast<size_t>(pages.count());
  tokens_.resize(2 * count * page_tokens());
  arena_pages_.resize(2 * count);
  // A node has at least one page.
  nodes_.reserve(count);
  free_nodes_.reserve(count);
  scratch_.reserve(count);
}

// --- finding ---------------------------------------------------------------------------------------------------------------------------

uint32_t RadixPrefixCache::child_hash(int32_t parent, CacheNamespace ns, const int32_t* tokens) const {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  uint64_t hash = ns ^ (static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32);
  const auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * kMultiplier;
    hash ^= hash >> 32;
  };
  mix(0);
  size_t i = 0;
  for (; i + 2 <= page_tokens(); i += 2) {
    uint64_t two;
    std::memcpy(&two, tokens + i, sizeof(two));
    mix(two);
  }
  if (i < page_tokens()) mix(static_cast<uint32_t>(tokens[i]));
  return static_cast<uint32_t>(hash);
}

int32_t RadixPrefixCache::find_child(int32_t parent, CacheNamespace ns, const int32_t* tokens) const {
  const auto matches = [&](int32_t n) {
    return node(n).parent == parent && node(n).ns == ns &&
           std::memcmp(run_tokens(node(n).run), tokens, page_tokens() * sizeof(int32_t)) == 0;
  };
  return index_.find(child_hash(parent, ns, tokens), matches, work_.probes);
}

/// Appends the pages of the prefix to `pages` unless that is null.
RadixPrefixCache::Position RadixPrefixCache::walk(CacheNamespace ns, std::span<const int32_t> tokens, std::vector<int32_t>* pages) const {
  Position position;
  const int32_t wanted = whole_pages(tokens);
  while (position.num_pages < wanted) {
    const int32_t* rest = tokens.data() + static_cast<size_t>(position.num_pages) * page_tokens();
    const int32_t child = find_child(position.node, ns, rest);
    if (child < 0) break;
    const Node& entered = node(child);
    const int32_t most = std::min(entered.num_pages, wanted - position.num_pages);
    const size_t found = page_tokens();  // its first page, which find_child() has compared
    const size_t common =
        found + common_tokens(run_tokens(entered.run) + found, rest + found, static_cast<size_t>(most - 1) * page_tokens());
    position.node = child;
    position.node_pages = static_cast<int32_t>(common / page_tokens());
    position.num_pages += position.node_pages;
    ++work_.nodes;
    work_.pages += static_cast<uint64_t>(position.node_pages);
    if (pages != nullptr) {
      const auto run = run_pages(entered).first(static_cast<size_t>(position.node_pages));
      pages->insert(pages->end(), run.begin(), run.end());
    }
    if (position.node_pages < entered.num_pages) break;
  }
  return position;
}

int32_t RadixPrefixCache::matched_pages(CacheNamespace ns, std::span<const int32_t> tokens) const {
  return walk(ns, tokens, nullptr).num_pages;
}

PrefixHandle RadixPrefixCache::match(CacheNamespace ns, std::span<const int32_t> tokens, std::vector<int32_t>& pages) {
  const int32_t n = whole_node(walk(ns, tokens, &pages));
  use_path(n);
  return handle_of(n);
}

// --- nodes -----------------------------------------------------------------------------------------------------------------------------

PrefixHandle RadixPrefixCache::handle_of(int32_t n) const {
  if (n < 0) return {};
  return {.node = n, .generation = node(n).generation, .num_pages = node(n).end};
}

int32_t RadixPrefixCache::checked(const PrefixHandle& handle) const {
  if (handle.empty()) return -1;
  MINISGL_CHECK(handle.node >= 0 && static_cast<size_t>(handle.node) < nodes_.size() && node(handle.node).generation == handle.generation &&
                    node(handle.node).end == handle.num_pages,
                "a handle of {} pages outlived its node {}", handle.num_pages, handle.node);
  return handle.node;
}

int32_t RadixPrefixCache::new_node() {
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  const int32_t n = free_nodes_.back();
  free_nodes_.pop_back();
  return n;
}

void RadixPrefixCache::remove_node(int32_t n) {
  Node& removed = node(n);
  index_.erase(removed.hash, n);
  if (removed.parent >= 0) --node(removed.parent).children;
  const uint32_t generation = removed.generation + 1;
  removed = {};
  removed.generation = generation;
  free_nodes_.push_back(n);
}

/// Room for a node's pages at the end of the arena.
int64_t RadixPrefixCache::new_run(int32_t num_pages) {
  if (arena_end_ + num_pages > static_cast<int64_t>(arena_pages_.size())) compact();
  const int64_t run = arena_end_;
  arena_end_ += num_pages;
  return run;
}

/// Moves all runs to the beginning of the arena, in their order.
void RadixPrefixCache::compact() {
  scratch_.clear();
  for (int32_t n = 0; n < static_cast<int32_t>(nodes_.size()); ++n) {
    if (node(n).num_pages > 0) scratch_.push_back(n);
  }
  std::sort(scratch_.begin(), scratch_.end(), [&](int32_t a, int32_t b) { return node(a).run < node(b).run; });
  arena_end_ = 0;
  for (const int32_t n : scratch_) {
    Node& moved = node(n);
    const auto count = static_cast<size_t>(moved.num_pages);
    std::memmove(run_tokens(arena_end_), run_tokens(moved.run), count * page_tokens() * sizeof(int32_t));
    std::memmove(arena_pages_.data() + arena_end_, arena_pages_.data() + moved.run, count * sizeof(int32_t));
    moved.run = arena_end_;
    arena_end_ += moved.num_pages;
  }
}

/// The node that ends where `position` does; -1 is the root. If the position is inside a node, that is cut in two: a new node takes the
/// upper part and the place in the parent, and the old one stays the end of the prefixes that handles name.
int32_t RadixPrefixCache::whole_node(const Position& position) {
  if (position.node < 0 || position.node_pages == node(position.node).num_pages) return position.node;
  const int32_t u = new_node();
  Node& upper = node(u);
  Node& lower = node(position.node);
  upper.parent = lower.parent;
  upper.run = lower.run;
  upper.num_pages = position.node_pages;
  upper.end = lower.end - lower.num_pages + position.node_pages;
  upper.children = 1;
  upper.locks = lower.locks;
  upper.hash = lower.hash;
  upper.stamp = lower.stamp;
  upper.ns = lower.ns;
  index_.replace(upper.hash, position.node, u);

  lower.parent = u;
  lower.run += position.node_pages;
  lower.num_pages -= position.node_pages;
  lower.hash = child_hash(u, lower.ns, run_tokens(lower.run));
  index_.insert(lower.hash, position.node);
  if (lower.locks == 0) {
    List& list = list_of(lower);
    upper.older = position.node;
    upper.newer = lower.newer;
    (lower.newer >= 0 ? node(lower.newer).older : list.newest) = u;
    lower.newer = u;
  }
  ++work_.nodes;
  return u;
}

// --- locks, stamps and the order of use ------------------------------------------------------------------------------------------------

void RadixPrefixCache::list_append(int32_t n) {
  Node& added = node(n);
  List& list = list_of(added);
  added.older = list.newest;
  added.newer = -1;
  (list.newest >= 0 ? node(list.newest).newer : list.oldest) = n;
  list.newest = n;
  ++work_.nodes;
}

void RadixPrefixCache::list_remove(int32_t n) {
  const Node& removed = node(n);
  List& list = list_of(removed);
  (removed.older >= 0 ? node(removed.older).newer : list.oldest) = removed.newer;
  (removed.newer >= 0 ? node(removed.newer).older : list.newest) = removed.older;
  ++work_.nodes;
}

/// Keeps in_flight_ in the order of stamps, and the stamp of a parent at least that of its children: what is in flight at all gets the
/// newest stamp. The node is in no list.
void RadixPrefixCache::stamp_node(Node& n, uint64_t last_step) {
  newest_stamp_ = std::max(newest_stamp_, last_step);
  if (last_step > committed_step_ || in_flight(n)) n.stamp = newest_stamp_;
}

/// The unlocked nodes of a path become the most recently used, its end before its beginning. One that is in flight is used until its step
/// commits, which is later than now: it stays.
void RadixPrefixCache::use_path(int32_t n) {
  for (; n >= 0; n = node(n).parent) {
    if (node(n).locks > 0 || in_flight(node(n))) continue;
    list_remove(n);
    list_append(n);
  }
}

void RadixPrefixCache::lock(const PrefixHandle& handle) {
  for (int32_t n = checked(handle); n >= 0; n = node(n).parent) {
    Node& locked = node(n);
    if (locked.locks++ > 0) continue;
    list_remove(n);
    evictable_pages_ -= locked.num_pages;
    if (in_flight(locked)) in_flight_pages_ -= locked.num_pages;
  }
}

void RadixPrefixCache::unlock(const PrefixHandle& handle, uint64_t last_step) {
  for (int32_t n = checked(handle); n >= 0; n = node(n).parent) {
    Node& unlocked = node(n);
    MINISGL_CHECK(unlocked.locks > 0, "node {} is unlocked more often than locked", n);
    stamp_node(unlocked, last_step);
    if (--unlocked.locks > 0) continue;
    list_append(n);
    evictable_pages_ += unlocked.num_pages;
    if (in_flight(unlocked)) in_flight_pages_ += unlocked.num_pages;
  }
}

void RadixPrefixCache::commit(uint64_t step) {
  MINISGL_DCHECK(step >= committed_step_, "step {} after {}", step, committed_step_);
  while (in_flight_.oldest >= 0 && node(in_flight_.oldest).stamp <= step) {
    const int32_t n = in_flight_.oldest;
    list_remove(n);
    in_flight_pages_ -= node(n).num_pages;
    node(n).stamp = 0;  // so that it is settled while the rest of the list is not yet
    list_append(n);
  }
  committed_step_ = step;
}

// --- content ---------------------------------------------------------------------------------------------------------------------------

PrefixCache::Insertion RadixPrefixCache::insert(CacheNamespace ns, std::span<const int32_t> tokens, std::span<const int32_t> pages,
                                                uint64_t last_step, std::vector<Duplicate>& duplicates) {
  const int32_t whole = whole_pages(tokens);
  MINISGL_CHECK(pages.size() >= static_cast<size_t>(whole), "{} pages for {} tokens", pages.size(), tokens.size());
  scratch_.clear();
  const Position position = walk(ns, tokens, &scratch_);
  const int32_t existing = position.num_pages;
  const auto added = pages.subspan(static_cast<size_t>(existing), static_cast<size_t>(whole - existing));
  pages_.cache(added);
  for (int32_t i = 0; i < existing; ++i) {
    const int32_t own = pages[static_cast<size_t>(i)];
    const int32_t tree = scratch_[static_cast<size_t>(i)];
    if (own != tree) duplicates.push_back({.page_index = i, .own_page = own, .tree_page = tree});
  }

  int32_t n = whole_node(position);
  if (!added.empty()) {
    const int64_t run = new_run(whole - existing);
    std::copy_n(tokens.data() + static_cast<size_t>(existing) * page_tokens(), added.size() * page_tokens(), run_tokens(run));
    std::copy(added.begin(), added.end(), arena_pages_.begin() + run);
    const int32_t parent = n;
    n = new_node();
    Node& leaf = node(n);
    leaf.parent = parent;
    leaf.num_pages = static_cast<int32_t>(added.size());
    leaf.run = run;
    leaf.end = whole;
    leaf.ns = ns;
    leaf.hash = child_hash(parent, ns, run_tokens(run));
    index_.insert(leaf.hash, n);
    if (parent >= 0) ++node(parent).children;
    list_append(n);
    cached_pages_ += leaf.num_pages;
    evictable_pages_ += leaf.num_pages;
    work_.pages += added.size();
  }
  if (last_step > committed_step_) {
    for (int32_t p = n; p >= 0; p = node(p).parent) {
      Node& stamped = node(p);
      const bool listed = stamped.locks == 0;
      if (listed) {
        list_remove(p);
        if (!in_flight(stamped)) in_flight_pages_ += stamped.num_pages;
      }
      stamp_node(stamped, last_step);
      if (listed) list_append(p);
    }
  } else {
    use_path(n);
  }
  return {.handle = handle_of(n), .existing_pages = existing};
}

int32_t RadixPrefixCache::evict(int32_t num_pages) {
  int32_t freed = 0;
  int32_t missing = std::min(num_pages, evictable_pages_);
  while (missing > 0) {
    const int32_t n = settled_.oldest >= 0 ? settled_.oldest : in_flight_.oldest;
    Node& leaf = node(n);
    MINISGL_CHECK(leaf.children == 0 && leaf.locks == 0, "node {} with {} children and {} locks is to be evicted", n, leaf.children,
                  leaf.locks);
    const int32_t count = std::min(missing, leaf.num_pages);
    pages_.retire_cached(run_pages(leaf).last(static_cast<size_t>(count)), leaf.stamp);
    leaf.num_pages -= count;
    leaf.end -= count;
    cached_pages_ -= count;
    evictable_pages_ -= count;
    if (in_flight(leaf)) {
      in_flight_pages_ -= count;
    } else {
      freed += count;
    }
    missing -= count;
    work_.pages += static_cast<uint64_t>(count);
    if (leaf.num_pages == 0) {
      list_remove(n);
      remove_node(n);
    }
  }
  return freed;
}

void RadixPrefixCache::reset() {
  MINISGL_CHECK(protected_pages() == 0, "{} pages are locked", protected_pages());
  evict(evictable_pages_);
}

// --- integrity -------------------------------------------------------------------------------------------------------------------------

/// Marks the node's pages in `seen`.
void RadixPrefixCache::check_node(int32_t n, std::vector<char>& seen) const {
  const Node& checked_node = node(n);
  MINISGL_CHECK(checked_node.run >= 0 && checked_node.run + checked_node.num_pages <= arena_end_, "node {} begins at {} of {}", n,
                checked_node.run, arena_end_);
  for (const int32_t page : run_pages(checked_node)) {
    MINISGL_CHECK(page >= 0 && page < pages_.count() && seen[static_cast<size_t>(page)]++ == 0, "page {} is in the tree twice", page);
    MINISGL_CHECK(pages_.state(page) == PageAllocator::State::kCached, "page {} is in the tree but not cached", page);
  }
  if (checked_node.parent >= 0) {
    const Node& parent = node(checked_node.parent);
    MINISGL_CHECK(parent.num_pages > 0 && parent.ns == checked_node.ns, "node {} hangs below node {}", n, checked_node.parent);
    MINISGL_CHECK(parent.stamp >= checked_node.stamp || !in_flight(checked_node), "node {} has a later stamp than its parent", n);
  }
  const int32_t begin = checked_node.parent >= 0 ? node(checked_node.parent).end : 0;
  MINISGL_CHECK(checked_node.end == begin + checked_node.num_pages, "node {} ends at page {}", n, checked_node.end);
  MINISGL_CHECK(find_child(checked_node.parent, checked_node.ns, run_tokens(checked_node.run)) == n, "node {} is not found", n);
}

/// A list has exactly the unlocked nodes, children before parents, and those in flight by stamp.
void RadixPrefixCache::check_lists() const {
  std::vector<char> passed(nodes_.size(), 0);
  int32_t pages[2] = {0, 0};
  for (const bool flight : {false, true}) {
    int32_t older = -1;
    for (int32_t n = flight ? in_flight_.oldest : settled_.oldest; n >= 0; older = n, n = node(n).newer) {
      const Node& listed = node(n);
      MINISGL_CHECK(passed[static_cast<size_t>(n)]++ == 0 && listed.older == older, "node {} is listed twice", n);
      MINISGL_CHECK(listed.num_pages > 0 && listed.locks == 0 && in_flight(listed) == flight, "node {} is in a list it is not for", n);
      MINISGL_CHECK(listed.parent < 0 || passed[static_cast<size_t>(listed.parent)] == 0, "node {} would be evicted after its parent", n);
      MINISGL_CHECK(older < 0 || !flight || node(older).stamp <= listed.stamp, "node {} is listed before its stamp", n);
      pages[flight ? 1 : 0] += listed.num_pages;
    }
    MINISGL_CHECK((flight ? in_flight_ : settled_).newest == older, "the list ends with node {}", older);
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const bool evictable = nodes_[n].num_pages > 0 && nodes_[n].locks == 0;
    MINISGL_CHECK(passed[n] == (evictable ? 1 : 0), "node {} with {} locks is {}", n, nodes_[n].locks, evictable ? "not listed" : "listed");
  }
  MINISGL_CHECK(pages[0] + pages[1] == evictable_pages_ && pages[1] == in_flight_pages_, "{} + {} pages are evictable, not {} with {}",
                pages[0], pages[1], evictable_pages_, in_flight_pages_);
}

void RadixPrefixCache::check_integrity() const {
  std::vector<char> seen(static_cast<size_t>(pages_.count()), 0);
  std::vector<int32_t> children(nodes_.size(), 0);
  std::vector<int32_t> child_locks(nodes_.size(), 0);
  int32_t pages = 0;
  int32_t live = 0;
  for (int32_t n = 0; n < static_cast<int32_t>(nodes_.size()); ++n) {
    const Node& counted = node(n);
    if (counted.num_pages == 0) continue;
    check_node(n, seen);
    pages += counted.num_pages;
    ++live;
    if (counted.parent < 0) continue;
    ++children[static_cast<size_t>(counted.parent)];
    child_locks[static_cast<size_t>(counted.parent)] += counted.locks;
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    MINISGL_CHECK(nodes_[n].children == children[n], "node {} has {} children, not {}", n, children[n], nodes_[n].children);
    MINISGL_CHECK(nodes_[n].locks >= child_locks[n], "node {} has {} locks, its children {}", n, nodes_[n].locks, child_locks[n]);
  }
  MINISGL_CHECK(pages == cached_pages_ && pages == pages_.cached(), "{} pages are in the tree, counted {}, and {} are cached", pages,
                cached_pages_, pages_.cached());
  MINISGL_CHECK(live == index_.size() && static_cast<size_t>(live) + free_nodes_.size() == nodes_.size(), "{} nodes, {} indexed, {} free",
                live, index_.size(), free_nodes_.size());
  check_lists();
}

}  // namespace minisgl
