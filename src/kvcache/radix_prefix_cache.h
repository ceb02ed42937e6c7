#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvcache/node_index.h"
#include "kvcache/prefix_cache.h"

namespace minisgl {

/// A radix tree over whole pages. A node is a run of pages; two children of a node differ in their first page.
///
/// A node's tokens and pages are one run of an arena, so that a match reads memory in order and a split or a cut copies nothing. Runs are
/// added at the arena's end. It has room for twice the pages there are: when the end is reached, the runs in use are moved together, which
/// happens at most once per pages.count() pages inserted. All memory is allocated by the constructor: 8 bytes per token, and at most 112
/// per page, 64 of them for a node. Children are found in one hash table, keyed by parent and first page.
///
/// Nodes that no one has locked are in one of two lists, from the least to the most recently used. `in_flight_` has those that a launched
/// step may still read, by stamp; commit() moves them to `settled_`. match() and insert() move a whole path, its end first. Hence
///
///   - a child has at most the locks and the stamp of its parent, and
///   - among the nodes of both lists, settled ones first, a child precedes its parent:
///
/// the first node is always a leaf, so that eviction costs O(1) per page and looks at nothing else.
class RadixPrefixCache final : public PrefixCache {
 public:
  RadixPrefixCache(PageAllocator& pages, int32_t page_size);

  std::string_view name() const override { return "radix"; }
  PrefixHandle match(CacheNamespace ns, std::span<const int32_t> tokens, std::vector<int32_t>& pages) override;
  int32_t matched_pages(CacheNamespace ns, std::span<const int32_t> tokens) const override;
  void lock(const PrefixHandle& handle) override;
  void unlock(const PrefixHandle& handle, uint64_t last_step) override;
  Insertion insert(CacheNamespace ns, std::span<const int32_t> tokens, std::span<const int32_t> pages, uint64_t last_step,
                   std::vector<Duplicate>& duplicates) override;
  int32_t evict(int32_t num_pages) override;
  void commit(uint64_t step) override;
  void reset() override;

  int32_t cached_pages() const override { return cached_pages_; }
  int32_t evictable_pages() const override { return evictable_pages_; }
  int32_t evictable_committed_pages() const override { return evictable_pages_ - in_flight_pages_; }
  void check_integrity() const override;

  int32_t num_nodes() const { return index_.size(); }

  /// What the operations have touched so far. Grows with what they are asked for, not with the size of the tree.
  struct Work {
    uint64_t nodes = 0;   ///< entered, moved in a list or removed
    uint64_t pages = 0;   ///< compared, inserted or evicted
    uint64_t probes = 0;  ///< slots of the hash table looked at
  };
  const Work& work() const { return work_; }

 private:
  /// 64 bytes. A node that is not in use has no pages and is on the stack free_nodes_.
  struct Node {
    int32_t parent = -1;  ///< -1 is the root, which is no node
    int32_t num_pages = 0;
    int64_t run = 0;  ///< where in the arena, in pages
    int32_t end = 0;  ///< pages of the prefix that ends with this node
    int32_t children = 0;
    int32_t locks = 0;  ///< of this node's prefix and of all longer ones
    uint32_t generation = 0;
    int32_t older = -1;  ///< neighbours in the list
    int32_t newer = -1;
    uint32_t hash = 0;
    uint64_t stamp = 0;  ///< last launched step that may read the pages; some committed one if none may
    CacheNamespace ns = 0;
  };
  struct List {
    int32_t oldest = -1;
    int32_t newest = -1;
  };
  /// Where the longest cached prefix of some tokens ends.
  struct Position {
    int32_t node = -1;       ///< the last node entered
    int32_t node_pages = 0;  ///< how many of its pages belong to the prefix, >= 1
    int32_t num_pages = 0;   ///< of the whole prefix
  };

  Node& node(int32_t n) { return nodes_[static_cast<size_t>(n)]; }
  const Node& node(int32_t n) const { return nodes_[static_cast<size_t>(n)]; }
  int32_t* run_tokens(int64_t run) { return tokens_.data() + static_cast<size_t>(run) * page_tokens(); }
  const int32_t* run_tokens(int64_t run) const { return tokens_.data() + static_cast<size_t>(run) * page_tokens(); }
  std::span<const int32_t> run_pages(const Node& n) const {
    return std::span(arena_pages_).subspan(static_cast<size_t>(n.run), static_cast<size_t>(n.num_pages));
  }
  size_t page_tokens() const { return static_cast<size_t>(page_size_); }
  int32_t whole_pages(std::span<const int32_t> tokens) const { return static_cast<int32_t>(tokens.size() / page_tokens()); }

  uint32_t child_hash(int32_t parent, CacheNamespace ns, const int32_t* tokens) const;
  int32_t find_child(int32_t parent, CacheNamespace ns, const int32_t* tokens) const;
  Position walk(CacheNamespace ns, std::span<const int32_t> tokens, std::vector<int32_t>* pages) const;
  int32_t whole_node(const Position& position);
  int32_t new_node();
  void remove_node(int32_t n);
  int64_t new_run(int32_t num_pages);
  void compact();
  PrefixHandle handle_of(int32_t n) const;
  int32_t checked(const PrefixHandle& handle) const;

  bool in_flight(const Node& n) const { return n.stamp > committed_step_; }
  List& list_of(const Node& n) { return in_flight(n) ? in_flight_ : settled_; }
  void list_append(int32_t n);
  void list_remove(int32_t n);
  void stamp_node(Node& n, uint64_t last_step);
  void use_path(int32_t n);

  void check_node(int32_t n, std::vector<char>& seen) const;
  void check_lists() const;

  PageAllocator& pages_;
  int32_t page_size_;
  std::vector<int32_t> tokens_;       // the arena: [2 * pages][page_size]
  std::vector<int32_t> arena_pages_;  // [2 * pages]
  int64_t arena_end_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_nodes_;
  NodeIndex index_;
  List settled_;
  List in_flight_;
  uint64_t committed_step_ = 0;
  uint64_t newest_stamp_ = 0;
  int32_t cached_pages_ = 0;
  int32_t evictable_pages_ = 0;  // of the nodes in both lists
  int32_t in_flight_pages_ = 0;  // of the nodes in in_flight_
  std::vector<int32_t> scratch_;
  mutable Work work_;
};

}  // namespace minisgl
