#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace minisgl {

namespace {

/// Waiting requests whose abort flag and deadline are looked at in one step; all are within waiting() / kChecksPerStep steps, and each when
/// its turn to be admitted comes.
constexpr size_t kChecksPerStep = 256;

}  // namespace

Scheduler::Scheduler(Executor& executor, const SchedulerConfig& config, OutputHandler on_output)
    : executor_(executor),
      config_(config),
      on_output_(std::move(on_output)),
      pages_("page", static_cast<int32_t>(config.num_pages)),
      rows_("row", static_cast<int32_t>(config.max_running_requests)),
      cache_(make_prefix_cache(config.cache, pages_, static_cast<int32_t>(config.page_size))),
      max_in_flight_(config.overlap && executor.max_in_flight() > 1 ? 2 : 1) {
  MINISGL_CHECK(config.max_prefill_tokens > 0 && config.expected_output_floor_tokens >= 2 && config.output_insertion_tokens > 0);
  const auto rows = static_cast<size_t>(config.max_running_requests);
  running_.reserve(rows);
  ended_.reserve(rows);
  decode_rows_.reserve(rows);
  in_flight_.reserve(max_in_flight_ + 1);
  for (size_t i = 0; i < max_in_flight_ + 1; ++i) {
    auto step = std::make_unique<LaunchedStep>();
    step->rows.reserve(rows);
    step->samples.reserve(rows);
    spare_.push_back(std::move(step));
  }
}

Scheduler::~Scheduler() = default;

void Scheduler::add(std::shared_ptr<Request> request) {
  auto sequence = std::make_unique<Sequence>(std::move(request), next_arrival_number_++);
  now_ = sequence->arrival = Clock::now();
  MINISGL_CHECK(sequence->prompt_tokens > 0 && sequence->request->max_tokens > 0);
  if (pages_of(sequence->max_length()) > config_.num_pages) {
    fail(*sequence, ErrorKind::kContextLengthExceeded,
         fmt::format("{} prompt tokens and {} of output can never fit: the KV pool holds {} tokens ({} pages of {})",
                     sequence->prompt_tokens, sequence->request->max_tokens, config_.num_pages * config_.page_size, config_.num_pages,
                     config_.page_size));
    return;
  }
  enqueue(std::move(sequence));
}

void Scheduler::step() {
  now_ = Clock::now();
  end_requests_on_demand();
  if (!fatal_error_.empty()) {
    fail_all(fatal_error_);
    remove_finished();
  }
  if (!has_work()) return;
  const bool launched = launch_step();
  if (!in_flight_.empty() && (in_flight_.size() == max_in_flight_ || !launched)) {
    commit_oldest();
  } else {
    MINISGL_CHECK(launched, "{} requests wait, {} run, and no step can be built", waiting(), running());
  }
#ifndef NDEBUG
  check_integrity();
#endif
}

bool Scheduler::launch_step() {
  if (!build_step()) return false;
  last_launched_step_ = plan_.step;
  ++stats_.steps;
  building_->step = plan_.step;
  building_->awaits_masks = plan_.late_sampling;
  building_->handle = executor_.launch(plan_);
  in_flight_.push_back(std::move(building_));
  if (in_flight_.size() == 1) bring_masks();
  return true;
}

void Scheduler::abort_all() {
  now_ = Clock::now();
  for (auto& sequence : waiting_) finish(*sequence, FinishReason::kAbort);
  for (auto& sequence : running_) finish(*sequence, FinishReason::kAbort);
  remove_finished();
  while (!in_flight_.empty()) commit_oldest();
}

void Scheduler::end_requests_on_demand() {
  for (auto& sequence : running_) end_on_demand(*sequence);
  const size_t checks = std::min(waiting_.size(), kChecksPerStep);
  for (size_t i = 0; i < checks; ++i) {
    if (next_checked_ >= waiting_.size()) next_checked_ = 0;
    end_on_demand(*waiting_[next_checked_++]);
  }
  remove_finished();
}

/// True if the request has ended because its client does not want it any more, or not so late.
bool Scheduler::end_on_demand(Sequence& sequence) {
  if (sequence.request->abort.load(std::memory_order_relaxed)) {
    finish(sequence, FinishReason::kAbort);
  } else if (now_ >= sequence.request->deadline) {
    fail(sequence, ErrorKind::kTimeout, fmt::format("the deadline passed after {} output tokens", sequence.output_tokens()));
  }
  return sequence.finished();
}

/// Ends a request: whatever launched steps still compute for it is dropped.
void Scheduler::finish(Sequence& sequence, FinishReason reason) {
  if (sequence.finished()) return;
  RequestResult& out = sequence.request->result;
  release(sequence, reason != FinishReason::kError);
  (sequence.state == State::kWaiting ? waiting_finished_ : running_finished_) = true;
  sequence.state = State::kFinished;
  out.finish_reason = reason;
  out.queue_us = elapsed_us(sequence.arrival, sequence.admitted == Clock::time_point() ? now_ : sequence.admitted);
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    output_length_.observe(sequence.output_tokens());
    return;  // the caller emits its last token
  }
  const size_t first_byte = out.text.size();
  if (reason == FinishReason::kAbort) sequence.text.finish(false, out.text);  // what there is, an unfinished character as U+FFFD
  emit(sequence, out.token_ids.size(), first_byte);
}

void Scheduler::fail(Sequence& sequence, ErrorKind kind, std::string message) {
  if (sequence.finished()) return;
  sequence.request->result.error = {.type = error_kind_name(kind), .message = std::move(message), .param = ""};
  finish(sequence, FinishReason::kError);
}

void Scheduler::fail_all(const std::string& message) {
  for (auto& sequence : waiting_) fail(*sequence, ErrorKind::kInternal, message);
  for (auto& sequence : running_) fail(*sequence, ErrorKind::kInternal, message);
}

void Scheduler::emit(const Sequence& sequence, size_t first_token, size_t first_byte) const {
  const RequestResult& out = sequence.request->result;
  on_output_({.request = *sequence.request,
              .token_ids = std::span(out.token_ids).subspan(first_token),
              .text = std::string_view(out.text).substr(first_byte),
              .finished = sequence.finished()});
}

/// Gives back row and pages once the last launched step has committed (rule 2). With `keep_prefix`, whole pages that committed steps have
/// written go to the prefix cache.
void Scheduler::release(Sequence& sequence, bool keep_prefix) {
  admission_blocked_ = false;
  if (sequence.row < 0) return;
  const uint64_t last_step = sequence.last_step;
  auto kept = static_cast<size_t>(sequence.prefix.num_pages);
  for (const auto& duplicate : sequence.duplicates) pages_.retire({&duplicate.own_page, 1}, last_step);
  sequence.duplicates.clear();
  if (keep_prefix) {
    const auto whole = static_cast<size_t>(sequence.committed_tokens / config_.page_size);
    duplicates_.clear();
    const auto inserted =
        cache_->insert(sequence.request->cache_namespace, std::span(sequence.tokens).first(whole * static_cast<size_t>(config_.page_size)),
                       sequence.pages, last_step, duplicates_);
    for (const auto& duplicate : duplicates_) pages_.retire({&duplicate.own_page, 1}, last_step);
    kept = std::max(kept, static_cast<size_t>(inserted.handle.num_pages));
  }
  cache_->unlock(sequence.prefix, last_step);
  pages_.retire(std::span<const int32_t>(sequence.pages).subspan(kept), last_step);
  rows_.retire({&sequence.row, 1}, last_step);
  sequence.prefix = {};
  sequence.pages.clear();
  sequence.sent_pages = 0;
  sequence.row = -1;
}

void Scheduler::remove_finished() {
  if (waiting_finished_) std::erase_if(waiting_, [](const auto& sequence) { return sequence->finished(); });
  waiting_finished_ = false;
  if (!running_finished_) return;
  running_finished_ = false;
  for (auto& sequence : running_) {
    if (sequence->finished() && sequence->in_flight > 0) ended_.push_back(std::move(sequence));
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence == nullptr || sequence->finished(); });
}

void Scheduler::check_integrity() const {
  pages_.check_integrity();
  rows_.check_integrity();
  cache_->check_integrity();
  // Every owned page and row is held by exactly one request, every page of a prefix by the cache; nobody else holds any.
  std::vector<int> holders(static_cast<size_t>(pages_.count()), 0);
  int32_t held_pages = 0;
  int32_t held_rows = 0;
  const auto hold_page = [&](int32_t page) {
    MINISGL_CHECK(pages_.state(page) == PageAllocator::State::kOwned && holders[static_cast<size_t>(page)]++ == 0,
                  "page {} is held by a request and not, or twice, owned", page);
    ++held_pages;
  };
  for (const auto& sequence : running_) {
    MINISGL_CHECK(sequence->row >= 0 && rows_.state(sequence->row) == RowAllocator::State::kOwned);
    ++held_rows;
    const auto shared = static_cast<size_t>(sequence->prefix.num_pages);
    MINISGL_CHECK(shared <= sequence->pages.size());
    for (size_t i = 0; i < sequence->pages.size(); ++i) {
      if (i < shared) {
        MINISGL_CHECK(pages_.state(sequence->pages[i]) == PageAllocator::State::kCached, "page {} of a locked prefix", sequence->pages[i]);
      } else {
        hold_page(sequence->pages[i]);
      }
    }
    for (const auto& duplicate : sequence->duplicates) hold_page(duplicate.own_page);
  }
  for (const auto& sequence : waiting_) MINISGL_CHECK(sequence->row < 0 && sequence->pages.empty() && sequence->prefix.empty());
  MINISGL_CHECK(held_pages == pages_.owned(), "requests hold {} pages, {} are owned", held_pages, pages_.owned());
  MINISGL_CHECK(held_rows == rows_.owned(), "requests hold {} rows, {} are owned", held_rows, rows_.owned());
  MINISGL_CHECK(std::is_sorted(running_.begin(), running_.end(), [](const auto& a, const auto& b) { return a->before(*b); }));
  MINISGL_CHECK(std::is_sorted(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) { return a->before(*b); }));
}

}  // namespace minisgl
