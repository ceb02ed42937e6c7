// Who has to make room when outputs grow longer than expected (rule 13).

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "scheduler/scheduler.h"

namespace minisgl {

/// Pages that the next two steps of a running sequence need beyond those it has.
int64_t Scheduler::pages_for_two_steps(const Sequence& sequence) const {
  const int64_t end = sequence.in_prefill() ? sequence.prefill_tokens + 1 : sequence.computed_tokens + 2;
  // The last token of a sequence is never computed.
  return std::max<int64_t>(pages_of(std::min(end, sequence.max_length() - 1)) - static_cast<int64_t>(sequence.pages.size()), 0);
}

/// Decided one step ahead, before anybody runs dry: if the next two steps need more pages than there are, the newest requests make room.
/// The oldest never does, so that something always gets done.
void Scheduler::preempt() {
  if (config_.admission == AdmissionPolicy::kFull) return;  // room was made at admission
  int64_t needed = 0;
  int64_t coming = 0;  // pages of those that were stopped already
  for (const auto& sequence : running_) {
    if (sequence->state == State::kRunning) {
      needed += pages_for_two_steps(*sequence);
    } else {
      coming += static_cast<int64_t>(sequence->pages.size());
    }
  }
  for (size_t i = running_.size(); i-- > 1 && needed > available_pages() + coming;) {
    Sequence& sequence = *running_[i];
    if (sequence.state != State::kRunning) continue;
    needed -= pages_for_two_steps(sequence);
    if (sequence.in_flight > 0) coming += static_cast<int64_t>(sequence.pages.size());
    stop(sequence);
  }
}

/// From here on in no further plan; back into the queue once its last launched step has committed.
void Scheduler::stop(Sequence& sequence) {
  ++stats_.preemptions;
  sequence.state = State::kStopping;
  if (sequence.in_flight == 0) requeue(sequence);
}

/// Its place in the queue is that of its arrival. What it computed stays matchable for as long as nobody needs the room; the rest is
/// computed again, with the output so far as part of the prompt.
void Scheduler::requeue(Sequence& sequence) {
  MINISGL_CHECK(sequence.in_flight == 0);
  release(sequence, true);
  sequence.state = State::kWaiting;
  sequence.computed_tokens = sequence.committed_tokens = sequence.prefill_tokens = 0;
  sequence.known_tokens = sequence.length();
  const auto place = std::find_if(running_.begin(), running_.end(), [&](const auto& candidate) { return candidate.get() == &sequence; });
  std::unique_ptr<Sequence> moved = std::move(*place);
  running_.erase(place);
  enqueue(std::move(moved));
}

void Scheduler::enqueue(std::unique_ptr<Sequence> sequence) {
  // Arrivals go to the end, preempted requests near the front: both ends of a deque are cheap.
  auto place = waiting_.end();
  if (!waiting_.empty() && sequence->before(*waiting_.back())) {
    place = std::upper_bound(waiting_.begin(), waiting_.end(), sequence, [](const auto& a, const auto& b) { return a->before(*b); });
  }
  if (place == waiting_.begin() || config_.policy == SchedulePolicy::kLpm) admission_blocked_ = false;
  waiting_.insert(place, std::move(sequence));
}

}  // namespace minisgl
