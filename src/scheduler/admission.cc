// Which waiting requests begin, and what room they need (rules 4 to 6).

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "scheduler/scheduler.h"

namespace minisgl {

namespace {

/// Waiting requests that one step looks at.
constexpr size_t kAdmissionWindow = 256;
/// With kLpm: a request that so many later arrivals have overtaken goes before those with longer matches.
constexpr int64_t kMaxOvertaken = 16;

}  // namespace

/// Positions that a match may cover: at least one token is computed (rule 5), and none is skipped whose log-probabilities are still wanted
/// of the token after it (rule 14).
int64_t Scheduler::matchable_tokens(const Sequence& sequence) const {
  int64_t tokens = sequence.length() - 1;
  if (sequence.request->prompt_logprobs >= 0) {
    const auto have = static_cast<int64_t>(sequence.request->result.prompt_logprobs.size());
    if (have < sequence.prompt_tokens) tokens = std::min(tokens, std::max<int64_t>(have - 1, 0));
  }
  return tokens;
}

/// Pages that the sequence will come to, as far as one can expect.
int64_t Scheduler::expected_pages(const Sequence& sequence) const {
  const int64_t max_tokens = sequence.request->max_tokens;
  const int64_t output = config_.admission == AdmissionPolicy::kFull
                             ? max_tokens
                             : output_length_.expected(sequence.output_tokens(), max_tokens, config_.expected_output_floor_tokens);
  return pages_of(sequence.prompt_tokens + output);
}

bool Scheduler::take_pages(std::span<int32_t> ids) {
  const auto wanted = static_cast<int64_t>(ids.size());
  if (available_pages() < wanted) return false;
  if (pages_.free() < wanted) {
    stats_.evicted_pages += wanted - pages_.free();
    cache_->evict(static_cast<int32_t>(wanted - pages_.free()));
  }
  const bool taken = pages_.allocate(ids);
  MINISGL_CHECK(taken, "the prefix cache promised pages that it did not free");
  return true;
}

/// Fills candidates_ with the first waiting requests, in the order in which they are to begin.
void Scheduler::order_candidates() {
  candidates_.clear();
  const size_t count = std::min(waiting_.size(), kAdmissionWindow);
  for (size_t i = 0; i < count; ++i) candidates_.push_back({.index = i, .matched_pages = -1, .aged = false});
  if (config_.policy == SchedulePolicy::kFcfs) return;
  for (Candidate& candidate : candidates_) {
    const Sequence& sequence = *waiting_[candidate.index];
    candidate.aged = sequence.overtaken >= kMaxOvertaken;
    const auto tokens = std::span(sequence.tokens).first(static_cast<size_t>(matchable_tokens(sequence)));
    if (!candidate.aged) candidate.matched_pages = cache_->matched_pages(sequence.request->cache_namespace, tokens);
  }
  std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
    const int priority_a = waiting_[a.index]->request->priority;
    const int priority_b = waiting_[b.index]->request->priority;
    if (priority_a != priority_b) return priority_a > priority_b;
    if (a.aged != b.aged) return a.aged;
    return a.matched_pages != b.matched_pages ? a.matched_pages > b.matched_pages : a.index < b.index;
  });
}

/// Admits waiting requests and adds their first chunks to the plan, up to `budget` tokens. Stops at the first that finds no room, so that a
/// large request is not overtaken for ever; one that is held lets others pass.
void Scheduler::admit_waiting(int64_t budget) {
  if (waiting_.empty() || admission_blocked_) return;
  order_candidates();
  size_t first_admitted = waiting_.size();
  for (const Candidate& candidate : candidates_) {
    if (budget == 0) break;
    Sequence& sequence = *waiting_[candidate.index];
    if (end_on_demand(sequence)) continue;
    const auto tokens = std::span(sequence.tokens).first(static_cast<size_t>(matchable_tokens(sequence)));
    // Most are held by the request that held them a step ago: that is known without a look at the tree.
    if (sequence.held_by != 0 && find_writer(sequence, sequence.held_pages) != nullptr) continue;
    const int32_t matched = cache_->matched_pages(sequence.request->cache_namespace, tokens);
    if (hold(sequence, matched)) continue;
    if (!find_room(sequence)) {
      admission_blocked_ = true;
      break;
    }
    std::unique_ptr<Sequence>& place = waiting_[candidate.index];
    first_admitted = std::min(first_admitted, candidate.index);
    const auto position =
        std::upper_bound(running_.begin(), running_.end(), place, [](const auto& a, const auto& b) { return a->before(*b); });
    running_.insert(position, std::move(place));
    const int64_t chunk = std::min(budget, sequence.prefill_tokens - sequence.computed_tokens);
    add_row(sequence, chunk);
    budget -= chunk;
    if (config_.policy == SchedulePolicy::kLpm) {
      for (size_t i = 0; i < candidate.index; ++i) {
        if (waiting_[i] != nullptr) ++waiting_[i]->overtaken;
      }
    }
  }
  if (first_admitted < waiting_.size()) {
    const auto window_end = waiting_.begin() + static_cast<std::ptrdiff_t>(candidates_.size());
    waiting_.erase(std::remove(waiting_.begin() + static_cast<std::ptrdiff_t>(first_admitted), window_end, nullptr), window_end);
  }
  remove_finished();
}

/// A running request that is about to compute the page after the `matched_pages` first ones of `sequence`: it has the same tokens so far,
/// and its prefill has not committed that page.
Sequence* Scheduler::find_writer(const Sequence& sequence, int64_t matched_pages) const {
  const int64_t end = (matched_pages + 1) * config_.page_size;
  if (end > matchable_tokens(sequence)) return nullptr;  // its next page is not a whole one of the prompt
  for (const auto& writer : running_) {
    if (writer->state != State::kRunning || writer->committed_tokens >= end || writer->prefill_tokens < end) continue;
    if (writer->arrival_number == sequence.was_held_by || writer->request->cache_namespace != sequence.request->cache_namespace) continue;
    if (std::equal(sequence.tokens.begin(), sequence.tokens.begin() + end, writer->tokens.begin())) return writer.get();
  }
  return nullptr;
}

/// True if the request waits for another one that computes its next page (rule 4). A writer holds it once: when the writer has committed
/// what they share, was stopped or has ended, it does not hold it again.
bool Scheduler::hold(Sequence& sequence, int64_t matched_pages) {
  if (config_.cache == PrefixCacheKind::kNaive) return false;
  const Sequence* writer = find_writer(sequence, matched_pages);
  const uint64_t number = writer == nullptr ? 0 : writer->arrival_number;
  if (number != sequence.held_by && sequence.held_by != 0) sequence.was_held_by = sequence.held_by;
  if (number != sequence.held_by && number != 0) ++stats_.holds;
  sequence.held_by = number;
  sequence.held_pages = matched_pages;
  return writer != nullptr;
}

/// Takes a row, the cached prefix and pages for what is known of the sequence. False, and nothing is taken, if there is no room for what it
/// and all running requests are expected to come to.
bool Scheduler::find_room(Sequence& sequence) {
  if (rows_.free() == 0) return false;
  int64_t reserved = 0;
  for (const auto& running : running_) {
    if (running->state == State::kRunning) {
      reserved += std::max<int64_t>(expected_pages(*running) - static_cast<int64_t>(running->pages.size()), 0);
    }
  }
  const Request& request = *sequence.request;
  sequence.pages.clear();
  sequence.pages.reserve(static_cast<size_t>(pages_of(sequence.max_length())));
  ++stats_.prefix_matches;
  const PrefixHandle prefix = cache_->match(
      request.cache_namespace, std::span(sequence.tokens).first(static_cast<size_t>(matchable_tokens(sequence))), sequence.pages);
  cache_->lock(prefix);
  const auto matched = static_cast<size_t>(prefix.num_pages);
  const int64_t expected = std::max(expected_pages(sequence) - prefix.num_pages, int64_t{0});
  sequence.pages.resize(static_cast<size_t>(pages_of(sequence.length())));
  if (expected + reserved > available_pages() || !take_pages(std::span(sequence.pages).subspan(matched))) {
    cache_->unlock(prefix, 0);
    sequence.pages.clear();
    return false;
  }
  rows_.allocate({&sequence.row, 1});
  sequence.prefix = prefix;
  sequence.sent_pages = 0;
  sequence.state = State::kRunning;
  sequence.prefill_tokens = sequence.known_tokens = sequence.length();
  sequence.computed_tokens = sequence.committed_tokens = prefix.num_pages * config_.page_size;
  if (sequence.admitted == Clock::time_point()) {
    sequence.admitted = now_;
    sequence.request->result.cached_tokens = sequence.computed_tokens;
    sequence.tokens.reserve(static_cast<size_t>(sequence.max_length()));
    sequence.request->result.token_ids.reserve(static_cast<size_t>(request.max_tokens));
  }
  sequence.next_target = std::max<int64_t>(static_cast<int64_t>(request.result.prompt_logprobs.size()), 1);

  plan_.token_writes.push_back({.row = sequence.row,
                                .position = 0,
                                .begin = static_cast<int32_t>(plan_.token_ids.size()),
                                .count = static_cast<int32_t>(sequence.length())});
  plan_.token_ids.insert(plan_.token_ids.end(), sequence.tokens.begin(), sequence.tokens.end());
  plan_.sampling_deltas.push_back({.row = sequence.row, .sampling = request.sampling});
  return true;
}

}  // namespace minisgl
