#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace minisgl {

/// Hands out the integers [0, count): KV pages of a cache group, or rows of the page table.
///
/// Each id is in exactly one state (docs/contract.md, rule 1). allocate() moves free ids to owned, cache() owned ones to cached. What a
/// launched step may still read or write must not be handed out again: retire() moves owned ids, and retire_cached() cached ones, to
/// retired under the stamp of the last launched step that references them, and commit() of that step makes them free. The most recently
/// freed id is handed out first, so that memory that was touched once is used again before fresh memory. All memory is allocated by the
/// constructor. Not thread safe: it belongs to the scheduler's thread.
class IdAllocator {
 public:
  enum class State : uint8_t { kFree, kOwned, kCached, kRetired };

  /// `name` stands for the units in messages of failed checks ("page", "row").
  IdAllocator(std::string name, int32_t count);

  int32_t count() const { return static_cast<int32_t>(state_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t retired() const { return static_cast<int32_t>(retired_.size()); }
  int32_t cached() const { return cached_; }
  int32_t owned() const { return count() - free() - cached() - retired(); }
  State state(int32_t id) const { return state_[static_cast<size_t>(id)]; }

  /// Fills `ids` with ids.size() free ids. False, and nothing has changed, if there are not so many.
  bool allocate(std::span<int32_t> ids);
  /// Owned ids become retired until commit(last_step). A stamp that has committed already (nothing in flight) makes them free at once.
  void retire(std::span<const int32_t> ids, uint64_t last_step) { retire_from(State::kOwned, ids, last_step); }
  /// Owned ids become the prefix cache's. Only the prefix cache calls this and retire_cached().
  void cache(std::span<const int32_t> ids);
  /// As retire(), of cached ids.
  void retire_cached(std::span<const int32_t> ids, uint64_t last_step) { retire_from(State::kCached, ids, last_step); }
  /// The results of `step` and of every earlier one have been handled.
  void commit(uint64_t step);

  /// Counts every id in its state and compares with the lists. Throws Error(kInternal) if an id is lost or doubly held.
  void check_integrity() const;

 private:
  struct Retired {
    uint64_t last_step;
    int32_t id;
  };

  void retire_from(State from, std::span<const int32_t> ids, uint64_t last_step);
  void release(int32_t id);

  std::string name_;
  std::vector<State> state_;
  std::vector<int32_t> free_;     // a stack: the back is handed out next
  std::vector<Retired> retired_;  // in no order: few steps are in flight, so each commit() frees most of them
  int32_t cached_ = 0;
  uint64_t committed_step_ = 0;
};

using PageAllocator = IdAllocator;
using RowAllocator = IdAllocator;

}  // namespace minisgl
