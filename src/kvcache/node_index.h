#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace minisgl {

/// A hash table of node numbers for which the caller hashes and compares: open addressing with linear probing, at most half full. Sized
/// once; entries are removed by closing the gap, so a lookup never passes what is no longer there.
class NodeIndex {
 public:
  /// Room for `max_nodes` nodes.
  explicit NodeIndex(int32_t max_nodes) : slots_(std::bit_ceil(2 * static_cast<size_t>(max_nodes) + 2)) {}

  int32_t size() const { return size_; }

  /// The node with this hash for which matches(node) holds, or -1. Adds the number of slots looked at to `probes`.
  template <typename Matches>
  int32_t find(uint32_t hash, const Matches& matches, uint64_t& probes) const {
    for (size_t i = home(hash);; i = next(i)) {
      ++probes;
      const Slot& slot = slots_[i];
      if (slot.node < 0) return -1;
      if (slot.hash == hash && matches(slot.node)) return slot.node;
    }
  }

  void insert(uint32_t hash, int32_t node) {
    MINISGL_CHECK(static_cast<size_t>(size_) < slots_.size() / 2, "{} nodes", size_);
    size_t i = home(hash);
    while (slots_[i].node >= 0) i = next(i);
    slots_[i] = {hash, node};
    ++size_;
  }

  void replace(uint32_t hash, int32_t node, int32_t replacement) { slots_[position(hash, node)].node = replacement; }

  void erase(uint32_t hash, int32_t node) {
    size_t gap = position(hash, node);
    for (size_t i = next(gap); slots_[i].node >= 0; i = next(i)) {
      // An entry may move back into the gap unless that is before its home.
      if (((i - home(slots_[i].hash)) & mask()) >= ((i - gap) & mask())) {
        slots_[gap] = slots_[i];
        gap = i;
      }
    }
    slots_[gap] = {};
    --size_;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t node = -1;
  };

  size_t mask() const { return slots_.size() - 1; }
  size_t home(uint32_t hash) const { return hash & mask(); }
  size_t next(size_t i) const { return (i + 1) & mask(); }
  size_t position(uint32_t hash, int32_t node) const {
    size_t i = home(hash);
    for (; slots_[i].node != node; i = next(i)) MINISGL_CHECK(slots_[i].node >= 0, "node {} is not indexed", node);
    return i;
  }

  std::vector<Slot> slots_;
  int32_t size_ = 0;
};

}  // namespace minisgl
