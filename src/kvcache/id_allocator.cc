#include "kvcache/id_allocator.h"

#include <utility>

#include "base/error.h"

namespace minisgl {

IdAllocator::IdAllocator(std::string name, int32_t count) : name_(std::move(name)) {
  MINISGL_CHECK(count >= 0, "{} {}s", count, name_);
  state_.assign(static_cast<size_t>(count), State::kFree);
  free_.reserve(static_cast<size_t>(count));
  retired_.reserve(static_cast<size_t>(count));
  for (int32_t id = count - 1; id >= 0; --id) free_.push_back(id);
}

bool IdAllocator::allocate(std::span<int32_t> ids) {
  if (ids.size() > free_.size()) return false;
  for (int32_t& id : ids) {
    id = free_.back();
    free_.pop_back();
    MINISGL_DCHECK(state(id) == State::kFree, "{} {}", name_, id);
    state_[static_cast<size_t>(id)] = State::kOwned;
  }
  return true;
}

void IdAllocator::cache(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    MINISGL_CHECK(id >= 0 && id < count() && state(id) == State::kOwned, "{} {} is cached but not owned", name_, id);
    state_[static_cast<size_t>(id)] = State::kCached;
    ++cached_;
  }
}

void IdAllocator::retire_from(State from, std::span<const int32_t> ids, uint64_t last_step) {
  // Backwards, so that a sequence's first page, the one surely touched, is the first to be handed out again.
  for (size_t i = ids.size(); i-- > 0;) {
    const int32_t id = ids[i];
    MINISGL_CHECK(id >= 0 && id < count() && state(id) == from, "{} {} is retired but not {}", name_, id,
                  from == State::kOwned ? "owned" : "cached");
    cached_ -= from == State::kCached ? 1 : 0;
    if (last_step <= committed_step_) {
      release(id);
    } else {
      state_[static_cast<size_t>(id)] = State::kRetired;
      retired_.push_back({last_step, id});
    }
  }
}

void IdAllocator::commit(uint64_t step) {
  MINISGL_DCHECK(step >= committed_step_, "step {} after {}", step, committed_step_);
  committed_step_ = step;
  std::erase_if(retired_, [&](const Retired& retired) {
    if (retired.last_step > step) return false;
    release(retired.id);
    return true;
  });
}

void IdAllocator::release(int32_t id) {
  state_[static_cast<size_t>(id)] = State::kFree;
  free_.push_back(id);
}

void IdAllocator::check_integrity() const {
  std::vector<int> seen(state_.size(), 0);
  for (const int32_t id : free_) {
    MINISGL_CHECK(state(id) == State::kFree && seen[static_cast<size_t>(id)]++ == 0, "free {} {}", name_, id);
  }
  for (const Retired& retired : retired_) {
    MINISGL_CHECK(state(retired.id) == State::kRetired && seen[static_cast<size_t>(retired.id)]++ == 0, "retired {} {}", name_, retired.id);
  }
  int32_t owned_ids = 0;
  int32_t cached_ids = 0;
  for (const State s : state_) {
    owned_ids += s == State::kOwned ? 1 : 0;
    cached_ids += s == State::kCached ? 1 : 0;
  }
  MINISGL_CHECK(owned_ids == owned() && cached_ids == cached(), "{} of {} {}s are owned, {} cached; {} free, {} retired", owned_ids,
                count(), name_, cached_ids, free(), retired());
}

}  // namespace minisgl
