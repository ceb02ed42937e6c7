// The plan of the next step, from launch-time counters alone: what launched steps will have done, not what is known of their results.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "scheduler/scheduler.h"

namespace minisgl {

/// False if there is nothing to launch.
bool Scheduler::build_step() {
  preempt();
  plan_.clear();
  plan_.step = last_launched_step_ + 1;
  if (building_ == nullptr) {
    building_ = std::move(spare_.back());
    spare_.pop_back();
  }
  building_->rows.clear();
  building_->samples.clear();
  building_->targets.clear();

  decode_rows_.clear();
  if (config_.mixed_steps) select_decode_rows();
  // At least one prompt token, so that prompts get on beside any number of running requests.
  build_prefill(std::max<int64_t>(config_.max_prefill_tokens - static_cast<int64_t>(decode_rows_.size()), 1));
  plan_.num_prefill_rows = static_cast<int32_t>(plan_.rows.size());
  if (!config_.mixed_steps && plan_.rows.empty()) select_decode_rows();
  for (Sequence* sequence : decode_rows_) add_row(*sequence, 1);
  return !plan_.rows.empty();
}

/// Prompts that are begun, then waiting requests.
void Scheduler::build_prefill(int64_t budget) {
  for (auto& sequence : running_) {
    if (budget == 0) return;
    if (sequence->state != State::kRunning || !sequence->in_prefill()) continue;
    const int64_t chunk = std::min(budget, sequence->prefill_tokens - sequence->computed_tokens);
    add_row(*sequence, chunk);
    budget -= chunk;
  }
  if (budget > 0) admit_waiting(budget);
}

/// The oldest first, so that they get what pages there are.
void Scheduler::select_decode_rows() {
  for (auto& sequence : running_) {
    if (sequence->state != State::kRunning || sequence->in_prefill() || sequence->launched_all()) continue;
    if (grow(*sequence)) {
      decode_rows_.push_back(sequence.get());
    } else {
      ++stats_.sat_out;
    }
  }
}

/// Sees to it that the sequence has a page for its next token. False: it sits out this step.
bool Scheduler::grow(Sequence& sequence) {
  if (sequence.computed_tokens < static_cast<int64_t>(sequence.pages.size()) * config_.page_size) return true;
  int32_t page = -1;
  if (!take_pages({&page, 1})) {
    // A duplicate that nothing in flight reads any more serves as well: otherwise the last row could wait for its own pages.
    if (sequence.duplicates.empty() || sequence.in_flight > 0) return false;
    add_page_deltas_of_duplicates(sequence);
    page = sequence.duplicates.back().own_page;
    sequence.duplicates.pop_back();
  }
  sequence.pages.push_back(page);
  return true;
}

/// Adds the next `num_tokens` of a sequence to the batch, and the logits they are wanted for: of the last known token a sample, of prompt
/// tokens the log-probability of the prompt token that follows.
void Scheduler::add_row(Sequence& sequence, int64_t num_tokens) {
  const int64_t begin = sequence.computed_tokens;
  const int64_t end = begin + num_tokens;
  const auto first_token = static_cast<int32_t>(plan_.num_tokens());
  add_page_deltas(sequence);
  plan_.rows.push_back({.row = sequence.row, .position = static_cast<int32_t>(begin), .num_tokens = static_cast<int32_t>(num_tokens)});
  building_->rows.push_back({.sequence = &sequence, .end = end});
  ++sequence.in_flight;
  sequence.last_step = plan_.step;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t page = sequence.pages[static_cast<size_t>(p / config_.page_size)];
    plan_.slots.push_back(static_cast<int32_t>(page * config_.page_size + p % config_.page_size));
  }

  const Request& request = *sequence.request;
  if (request.prompt_logprobs >= 0) {
    // The logits of position p tell of position p + 1. A chunk that was computed before the request was preempted has told already.
    const int64_t last = std::min(end, sequence.prompt_tokens - 1);
    for (; sequence.next_target <= last; ++sequence.next_target) {
      const auto target = static_cast<size_t>(sequence.next_target);
      const int32_t token_id = sequence.tokens[target];
      plan_.targets.push_back(
          {.logit_row = static_cast<int32_t>(plan_.logit_rows.size()), .token_id = token_id, .top = request.prompt_logprobs});
      plan_.logit_rows.push_back(first_token + static_cast<int32_t>(sequence.next_target - 1 - begin));
      building_->targets.push_back({.sequence = &sequence, .token_id = token_id});
    }
  }
  if (end == sequence.known_tokens) {
    plan_.samples.push_back(
        {.logit_row = static_cast<int32_t>(plan_.logit_rows.size()), .row = sequence.row, .position = static_cast<int32_t>(end)});
    plan_.logit_rows.push_back(first_token + static_cast<int32_t>(num_tokens) - 1);
    building_->samples.push_back(&sequence);
    plan_.late_sampling |= request.token_mask != nullptr;
    ++sequence.known_tokens;
  }
  sequence.computed_tokens = end;
}

/// Tells the device of pages that are new, and of the tree's pages that take the place of duplicates. The row's last step
/// before this plan is the last that refers to a duplicate (rules 2 and 3).
void Scheduler::add_page_deltas(Sequence& sequence) {
  add_page_deltas_of_duplicates(sequence);
  for (const auto& duplicate : sequence.duplicates) pages_.retire({&duplicate.own_page, 1}, sequence.last_step);
  sequence.duplicates.clear();
  for (; sequence.sent_pages < sequence.pages.size(); ++sequence.sent_pages) {
    plan_.page_deltas.push_back(
        {.row = sequence.row, .page_index = static_cast<int32_t>(sequence.sent_pages), .page = sequence.pages[sequence.sent_pages]});
  }
}

void Scheduler::add_page_deltas_of_duplicates(const Sequence& sequence) {
  for (const auto& duplicate : sequence.duplicates) {
    plan_.page_deltas.push_back({.row = sequence.row, .page_index = duplicate.page_index, .page = duplicate.tree_page});
  }
}

}  // namespace minisgl
