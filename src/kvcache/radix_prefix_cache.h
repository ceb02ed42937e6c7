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
/// All memory is allocated by the constructor, by the number of pages: a page is in the tree at most once, so the tokens of a page and the
/// links to its neighbours in its node are stored under the page number, a node names its first and last page, and a split or a cut copies
/// nothing. Children are found in one hash table, keyed by parent and first page.
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
    int32_t first_page = -1;
    int32_t last_page = -1;
    int32_t num_pages = 0;
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
  /// Neighbours of a page in its node; undefined beyond the node's ends.
  struct PageLink {
    int32_t previous;
    int32_t next;
  };
  struct List {
    int32_t oldest = -1;
    int32_t newest = -1;
  };
  /// Where the longest cached prefix of some tokens ends.
  struct Position {
    int32_t node = -1;       ///< the last node entered
    int32_t node_pages = 0;  ///< how many of its pages belong to the prefix, >= 1
    int32_t last_page = -1;  ///< the last of them
    int32_t num_pages = 0;   ///< of the whole prefix
  };

  Node& node(int32_t n) { return nodes_[static_cast<size_t>(n)]; }
  const Node& node(int32_t n) const { return nodes_[static_cast<size_t>(n)]; }
  PageLink& link(int32_t page) { return links_[static_cast<size_t>(page)]; }
  const PageLink& link(int32_t page) const { return links_[static_cast<size_t>(page)]; }
  int32_t* tokens_of(int32_t page) { return tokens_.data() + static_cast<size_t>(page) * page_tokens(); }
  const int32_t* tokens_of(int32_t page) const { return tokens_.data() + static_cast<size_t>(page) * page_tokens(); }
  size_t page_tokens() const { return static_cast<size_t>(page_size_); }
  int32_t whole_pages(std::span<const int32_t> tokens) const { return static_cast<int32_t>(tokens.size() / page_tokens()); }
  bool holds(int32_t page, const int32_t* tokens) const;

  uint32_t child_hash(int32_t parent, CacheNamespace ns, const int32_t* tokens) const;
  int32_t find_child(int32_t parent, CacheNamespace ns, const int32_t* tokens) const;
  Position walk(CacheNamespace ns, std::span<const int32_t> tokens, std::vector<int32_t>* pages) const;
  int32_t whole_node(const Position& position);
  int32_t new_node();
  void remove_node(int32_t n);
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
  std::vector<int32_t> tokens_;  // [page][page_size]
  std::vector<PageLink> links_;  // [page]
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
  std::vector<int32_t> walk_pages_;
  mutable Work work_;
};

}  // namespace minisgl
