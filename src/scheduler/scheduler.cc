#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace minisgl {

namespace {

int64_t microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

TokenLogprob token_logprob(const RowLogprobs& row, int32_t token_id, const StepResult& result) {
  TokenLogprob out{.token_id = token_id, .logprob = row.token_logprob, .top = {}};
  for (int32_t i = row.top_begin; i < row.top_begin + row.top_count; ++i) {
    out.top.emplace_back(result.top_ids[static_cast<size_t>(i)], result.top_logprobs[static_cast<size_t>(i)]);
  }
  return out;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Scheduler::Scheduler(Executor& executor, const SchedulerConfig& config, OutputHandler on_output)
    : executor_(executor),
      config_(config),
      on_output_(std::move(on_output)),
      pages_("page", static_cast<int32_t>(config.num_pages)),
      rows_("row", static_cast<int32_t>(config.max_running_requests)) {
  running_.reserve(static_cast<size_t>(config.max_running_requests));
}

Scheduler::~Scheduler() = default;

void Scheduler::add(std::shared_ptr<Request> request) {
  auto sequence = std::make_unique<Sequence>(std::move(request));
  sequence->arrival = Clock::now();
  MINISGL_CHECK(sequence->prompt_tokens() > 0 && sequence->request->max_tokens > 0);
  MINISGL_CHECK(sequence->prompt_tokens() + sequence->request->max_tokens <= config_.num_pages * config_.page_size,
                "a request that can never fit was not refused");
  waiting_.push_back(std::move(sequence));
}

void Scheduler::abort_all() {
  for (auto& sequence : waiting_) sequence->request->abort = true;
  for (auto& sequence : running_) sequence->request->abort = true;
  finish_aborted();
}

void Scheduler::step() {
  finish_aborted();
  if (!has_work()) return;
  if (!fatal_error_.empty()) {
    for (auto& sequence : waiting_) fail(*sequence, fatal_error_);
    for (auto& sequence : running_) fail(*sequence, fatal_error_);
    remove_finished();
    return;
  }
  build_step();
  MINISGL_CHECK(!plan_.rows.empty(), "{} requests wait, {} run, and no step can be built", waiting(), running());
  last_launched_step_ = plan_.step;
  const StepHandle handle = executor_.launch(plan_);
  commit(handle->wait(Clock::time_point::max()));
  pages_.commit(plan_.step);
  rows_.commit(plan_.step);
  remove_finished();
#ifndef NDEBUG
  pages_.check_integrity();
  rows_.check_integrity();
#endif
}

void Scheduler::finish_aborted() {
  for (auto& sequence : waiting_) {
    if (sequence->request->abort) finish(*sequence, FinishReason::kAbort);
  }
  for (auto& sequence : running_) {
    if (sequence->request->abort) finish(*sequence, FinishReason::kAbort);
  }
  remove_finished();
}

void Scheduler::remove_finished() {
  const auto finished = [](const std::unique_ptr<Sequence>& sequence) { return sequence->finished; };
  std::erase_if(waiting_, finished);
  std::erase_if(running_, finished);
}

// --- building a step -------------------------------------------------------------------------------------------------------------------

void Scheduler::build_step() {
  plan_.clear();
  plan_.step = last_launched_step_ + 1;
  batch_.clear();
  sample_sequence_.clear();
  target_sequence_.clear();
  if (!build_prefill()) build_decode();
}

/// Prompts that are begun, then waiting ones in order of arrival until one finds no room: a large request is never overtaken for ever.
bool Scheduler::build_prefill() {
  int64_t budget = config_.max_prefill_tokens;
  for (auto& sequence : running_) {
    if (!sequence->in_prefill() || budget == 0) continue;
    const int64_t tokens = std::min(budget, sequence->prompt_tokens() - sequence->computed_tokens);
    add_row(*sequence, tokens);
    budget -= tokens;
  }
  while (budget > 0 && !waiting_.empty() && admit(*waiting_.front())) {
    Sequence& sequence = *running_.emplace_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const int64_t tokens = std::min(budget, sequence.prompt_tokens());
    add_row(sequence, tokens);
    budget -= tokens;
  }
  plan_.num_prefill_rows = static_cast<int32_t>(plan_.rows.size());
  return !plan_.rows.empty();
}

void Scheduler::build_decode() {
  for (auto& sequence : running_) add_row(*sequence, 1);
}

/// Takes a row and all pages, and adds what the executor must know of the new row to the plan. False if there is no room.
bool Scheduler::admit(Sequence& sequence) {
  const Request& request = *sequence.request;
  const int64_t tokens = sequence.prompt_tokens() + request.max_tokens;
  const int64_t num_pages = (tokens + config_.page_size - 1) / config_.page_size;
  if (rows_.free() == 0 || pages_.free() < num_pages) return false;
  sequence.pages.resize(static_cast<size_t>(num_pages));
  rows_.allocate({&sequence.row, 1});
  pages_.allocate(sequence.pages);
  sequence.admitted = Clock::now();

  for (size_t i = 0; i < sequence.pages.size(); ++i) {
    plan_.page_deltas.push_back({.row = sequence.row, .page_index = static_cast<int32_t>(i), .page = sequence.pages[i]});
  }
  plan_.token_writes.push_back({.row = sequence.row,
                                .position = 0,
                                .begin = static_cast<int32_t>(plan_.token_ids.size()),
                                .count = static_cast<int32_t>(sequence.prompt_tokens())});
  plan_.token_ids.insert(plan_.token_ids.end(), request.prompt_token_ids.begin(), request.prompt_token_ids.end());
  plan_.sampling_deltas.push_back({.row = sequence.row, .sampling = request.sampling});
  return true;
}

/// Adds the next `num_tokens` of a sequence to the batch, and the logits they are wanted for: of the last known token a sample, of prompt
/// tokens the log-probability of the prompt token that follows.
void Scheduler::add_row(Sequence& sequence, int64_t num_tokens) {
  const int64_t begin = sequence.computed_tokens;
  const int64_t end = begin + num_tokens;
  const auto first_token = static_cast<int32_t>(plan_.num_tokens());
  plan_.rows.push_back({.row = sequence.row, .position = static_cast<int32_t>(begin), .num_tokens = static_cast<int32_t>(num_tokens)});
  batch_.push_back(&sequence);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t page = sequence.pages[static_cast<size_t>(p / config_.page_size)];
    plan_.slots.push_back(static_cast<int32_t>(page * config_.page_size + p % config_.page_size));
  }

  const Request& request = *sequence.request;
  if (request.prompt_logprobs >= 0) {
    for (int64_t p = begin; p < std::min(end, sequence.prompt_tokens() - 1); ++p) {
      plan_.targets.push_back({.logit_row = static_cast<int32_t>(plan_.logit_rows.size()),
                               .token_id = request.prompt_token_ids[static_cast<size_t>(p) + 1],
                               .top = request.prompt_logprobs});
      plan_.logit_rows.push_back(first_token + static_cast<int32_t>(p - begin));
      target_sequence_.push_back(&sequence);
    }
  }
  if (end == sequence.length()) {
    plan_.samples.push_back(
        {.logit_row = static_cast<int32_t>(plan_.logit_rows.size()), .row = sequence.row, .position = static_cast<int32_t>(end)});
    plan_.logit_rows.push_back(first_token + static_cast<int32_t>(num_tokens) - 1);
    sample_sequence_.push_back(&sequence);
  }
  sequence.computed_tokens = end;
}

// --- committing a step -----------------------------------------------------------------------------------------------------------------

void Scheduler::commit(const StepResult& result) {
  if (result.status == StepResult::Status::kRejected) {
    for (Sequence* sequence : batch_) fail(*sequence, result.message);
    return;
  }
  if (result.status == StepResult::Status::kFatal) {
    fatal_error_ = result.message.empty() ? "the engine has failed" : result.message;
    spdlog::error("{}", fatal_error_);
    for (auto& sequence : waiting_) fail(*sequence, fatal_error_);
    for (auto& sequence : running_) fail(*sequence, fatal_error_);
    return;
  }
  for (size_t i = 0; i < target_sequence_.size(); ++i) {
    std::vector<std::optional<TokenLogprob>>& logprobs = target_sequence_[i]->request->result.prompt_logprobs;
    if (logprobs.empty()) logprobs.emplace_back();  // nothing comes before the first token
    logprobs.emplace_back(token_logprob(result.targets[i], plan_.targets[i].token_id, result));
  }
  for (size_t i = 0; i < sample_sequence_.size(); ++i) commit_sample(*sample_sequence_[i], result, i);
}

void Scheduler::commit_sample(Sequence& sequence, const StepResult& result, size_t index) {
  Request& request = *sequence.request;
  RequestResult& out = request.result;
  const auto now = Clock::now();
  if (result.row_status[index] != RowStatus::kOk) {
    fail(sequence, fmt::format("{} at output token {}",
                               result.row_status[index] == RowStatus::kNanLogits ? "the model gave logits that are not numbers"
                                                                                 : "no token is allowed",
                               out.token_ids.size() + 1));
    return;
  }
  const int32_t id = result.token_ids[index];
  const size_t first_byte = out.text.size();
  if (out.token_ids.empty()) {
    sequence.first_token = now;
    out.prefill_us = microseconds(now - sequence.admitted);
    if (request.prompt_logprobs >= 0 && out.prompt_logprobs.empty()) out.prompt_logprobs.emplace_back();  // a prompt of one token
  }
  out.decode_us = microseconds(now - sequence.first_token);
  out.token_ids.push_back(id);
  if (request.sampling.logprobs >= 0) out.logprobs.push_back(token_logprob(result.logprobs[index], id, result));

  const auto tokens = static_cast<int64_t>(out.token_ids.size());
  const bool allow_stop = tokens >= request.sampling.min_tokens;
  std::optional<FinishReason> reason;
  const std::string* stop = nullptr;
  if (contains(request.stop_token_ids, id)) {
    reason = FinishReason::kStop;
    out.matched_stop = id;
  } else if (contains(request.eos_token_ids, id)) {
    reason = FinishReason::kStop;
  } else {
    stop = sequence.text.push(id, allow_stop, out.text);
    if (tokens == request.max_tokens) reason = FinishReason::kLength;
  }
  if (stop == nullptr && reason) stop = sequence.text.finish(allow_stop, out.text);
  if (stop != nullptr) {
    reason = FinishReason::kStop;
    out.matched_stop = *stop;
  }
  if (reason) finish(sequence, *reason);
  emit(sequence, out.token_ids.size() - 1, first_byte);
}

/// Releases what the sequence holds: at once if no step is in flight that references it, else when that step has committed.
void Scheduler::finish(Sequence& sequence, FinishReason reason) {
  if (sequence.finished) return;
  sequence.finished = true;
  RequestResult& out = sequence.request->result;
  out.finish_reason = reason;
  const auto now = Clock::now();
  out.queue_us = microseconds((sequence.row >= 0 ? sequence.admitted : now) - sequence.arrival);
  if (sequence.row >= 0) {
    pages_.retire(sequence.pages, last_launched_step_);
    rows_.retire({&sequence.row, 1}, last_launched_step_);
  }
  if (reason == FinishReason::kAbort || reason == FinishReason::kError) {
    const size_t first_byte = out.text.size();
    if (reason == FinishReason::kAbort) sequence.text.finish(false, out.text);  // what there is, an unfinished character as U+FFFD
    emit(sequence, out.token_ids.size(), first_byte);
  }
}

void Scheduler::fail(Sequence& sequence, std::string message) {
  if (sequence.finished) return;
  sequence.request->result.error = {.type = error_kind_name(ErrorKind::kInternal), .message = std::move(message), .param = ""};
  finish(sequence, FinishReason::kError);
}

void Scheduler::emit(const Sequence& sequence, size_t first_token, size_t first_byte) const {
  const RequestResult& out = sequence.request->result;
  on_output_({.request = *sequence.request,
              .token_ids = std::span(out.token_ids).subspan(first_token),
              .text = std::string_view(out.text).substr(first_byte),
              .finished = sequence.finished});
}

}  // namespace minisgl
