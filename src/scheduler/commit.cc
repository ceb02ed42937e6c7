// The results of a step: what requests get, who has ended, what others may read from now on (rules 3, 4, 7 and 9).

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "scheduler/scheduler.h"

namespace minisgl {

namespace {

/// Outputs that grow in step are due for insertion in the same step: the rest of them waits for the next one.
constexpr int kOutputInsertionsPerStep = 8;

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

void Scheduler::commit_oldest() {
  std::unique_ptr<LaunchedStep> step = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  const StepResult& result = step->handle->wait(Clock::time_point::max());
  now_ = Clock::now();
  commit(*step, result);
  step->handle.reset();

  const int32_t free_pages = pages_.free();
  const int32_t free_rows = rows_.free();
  pages_.commit(step->step);
  rows_.commit(step->step);
  cache_->commit(step->step);
  if (pages_.free() != free_pages || rows_.free() != free_rows) admission_blocked_ = false;

  for (const auto& row : step->rows) {
    if (row.sequence->state == State::kStopping && row.sequence->in_flight == 0) requeue(*row.sequence);
  }
  remove_finished();
  std::erase_if(ended_, [](const auto& sequence) { return sequence->in_flight == 0; });
  spare_.push_back(std::move(step));
  bring_masks();
}

/// Rows of requests that have ended since the step was launched are dropped: after its last token a request produces nothing.
void Scheduler::commit(LaunchedStep& step, const StepResult& result) {
  for (const auto& row : step.rows) --row.sequence->in_flight;
  if (result.status == StepResult::Status::kRejected) {
    for (const auto& row : step.rows) fail(*row.sequence, ErrorKind::kInternal, result.message);
    return;
  }
  if (result.status == StepResult::Status::kFatal) {
    if (fatal_error_.empty()) {
      fatal_error_ = result.message.empty() ? "the engine has failed" : result.message;
      spdlog::error("{}", fatal_error_);
    }
    fail_all(fatal_error_);
    return;
  }
  for (const auto& row : step.rows) row.sequence->committed_tokens = row.end;
  commit_targets(step, result);
  for (size_t i = 0; i < step.samples.size(); ++i) commit_sample(*step.samples[i], result, i);
  output_insertions_ = 0;
  for (const auto& row : step.rows) share_pages(*row.sequence);
}

void Scheduler::commit_targets(const LaunchedStep& step, const StepResult& result) {
  for (size_t i = 0; i < step.targets.size(); ++i) {
    if (step.targets[i].sequence->finished()) continue;
    std::vector<std::optional<TokenLogprob>>& logprobs = step.targets[i].sequence->request->result.prompt_logprobs;
    if (logprobs.empty()) logprobs.emplace_back();  // nothing comes before the first token
    logprobs.emplace_back(token_logprob(result.targets[i], step.targets[i].token_id, result));
  }
}

void Scheduler::commit_sample(Sequence& sequence, const StepResult& result, size_t index) {
  if (sequence.finished()) {
    ++stats_.dropped;
    return;
  }
  Request& request = *sequence.request;
  RequestResult& out = request.result;
  if (result.row_status[index] != RowStatus::kOk) {
    fail(sequence, ErrorKind::kInternal,
         fmt::format(
             "{} at output token {}",
             result.row_status[index] == RowStatus::kNanLogits ? "the model gave logits that are not numbers" : "no token is allowed",
             out.token_ids.size() + 1));
    return;
  }
  const int32_t id = result.token_ids[index];
  const size_t first_byte = out.text.size();
  if (out.token_ids.empty()) {
    sequence.first_token = now_;
    out.prefill_us = elapsed_us(sequence.admitted, now_);
    if (request.prompt_logprobs >= 0 && out.prompt_logprobs.empty()) out.prompt_logprobs.emplace_back();  // a prompt of one token
  }
  out.decode_us = elapsed_us(sequence.first_token, now_);
  out.token_ids.push_back(id);
  sequence.tokens.push_back(id);
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

/// Makes whole pages that committed steps have written matchable. Where another request was first, this one goes over to the tree's pages;
/// the device is told with its next plan.
void Scheduler::share_pages(Sequence& sequence) {
  if (sequence.state != State::kRunning) return;  // the others share what they have when they are released
  const int64_t whole = sequence.committed_tokens / config_.page_size;
  const int64_t unshared = sequence.committed_tokens - sequence.prefix.num_pages * config_.page_size;
  const bool prefill = sequence.prefix.num_pages * config_.page_size < sequence.prefill_tokens;
  if (whole == sequence.prefix.num_pages) return;
  if (!prefill && (unshared < config_.output_insertion_tokens || output_insertions_++ >= kOutputInsertionsPerStep)) return;
  duplicates_.clear();
  const auto inserted =
      cache_->insert(sequence.request->cache_namespace, std::span(sequence.tokens).first(static_cast<size_t>(whole * config_.page_size)),
                     sequence.pages, sequence.last_step, duplicates_);
  if (inserted.handle.empty()) return;  // naive
  cache_->lock(inserted.handle);
  cache_->unlock(sequence.prefix, sequence.last_step);
  sequence.prefix = inserted.handle;
  for (const auto& duplicate : duplicates_) {
    sequence.pages[static_cast<size_t>(duplicate.page_index)] = duplicate.tree_page;
    sequence.duplicates.push_back(duplicate);
  }
  admission_blocked_ = false;
}

/// The oldest step in flight knows all tokens before its own: if it waits for masks, they can be made now.
void Scheduler::bring_masks() {
  if (in_flight_.empty() || !in_flight_.front()->awaits_masks) return;
  LaunchedStep& step = *in_flight_.front();
  step.awaits_masks = false;
  const auto words = static_cast<size_t>((config_.vocab_size + 31) / 32);
  masks_.assign(step.samples.size() * words, ~0u);
  for (size_t i = 0; i < step.samples.size(); ++i) {
    const Sequence& sequence = *step.samples[i];
    if (sequence.finished() || !sequence.request->token_mask) continue;
    const auto mask = std::span(masks_).subspan(i * words, words);
    std::fill(mask.begin(), mask.end(), 0u);
    sequence.request->token_mask(sequence.request->result.token_ids, mask);
  }
  step.handle->sample({masks_});
}

}  // namespace minisgl
