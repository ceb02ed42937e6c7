#include "scheduler/fuzz.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace minisgl::test {

namespace {

constexpr int64_t kVocab = 60;
constexpr size_t kMaxOpen = 24;
/// Steps without a computed token while there is work: pages and rows come back with the steps in flight, of which there are two.
constexpr int64_t kMaxIdleSteps = 6;

/// A byte-level vocabulary: id i stands for the character '!' + i.
const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load_tokenizer_json(MINISGL_TEST_DATA "/models/tiny-qwen3/tokenizer.json");
  return loaded;
}

std::string text_of(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += static_cast<char>('!' + id);
  return text;
}

/// The first stop string that is complete in the text, as (tokens up to its end, index in `stops`), the longest of those that end there.
std::optional<std::pair<size_t, size_t>> find_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> found;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool complete = std::string_view(text).substr(0, end).ends_with(stops[i]);
      if (complete && (!found || stops[i].size() > stops[*found].size())) found = i;
    }
    if (found) return std::pair(end, *found);
  }
  return {};
}

}  // namespace

void mask_by_last_token(std::span<const int32_t> output, int64_t vocab_size, std::span<uint32_t> mask) {
  const int32_t last = output.empty() ? 0 : output.back();
  for (int32_t token = 0; token < vocab_size; ++token) {
    if ((token + last) % 3 != 0) mask[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
  }
}

SchedulerFuzz::SchedulerFuzz(uint64_t seed) : random_(seed), seed_(seed) {
  const int64_t page_sizes[] = {1, 1, 2, 3, 4, 8, 16};
  config_.page_size = page_sizes[draw(0, 6)];
  const bool crowded = chance(0.5);  // many rows for few pages: outputs outgrow the pool
  const int64_t pool_tokens = chance(0.1) ? draw(4, 24) : crowded ? draw(30, 90) : draw(40, 300);
  config_.num_pages = std::max<int64_t>(pool_tokens / config_.page_size, chance(0.1) ? 1 : 2);
  config_.max_running_requests = crowded ? draw(4, 10) : draw(1, 9);
  config_.max_prefill_tokens = chance(0.3) ? draw(1, 4) : draw(5, 80);
  config_.vocab_size = kVocab;
  config_.cache = chance(0.75) ? PrefixCacheKind::kRadix : PrefixCacheKind::kNaive;
  config_.policy = chance(0.7) ? SchedulePolicy::kFcfs : SchedulePolicy::kLpm;
  config_.admission = chance(0.75) ? AdmissionPolicy::kExpected : AdmissionPolicy::kFull;
  config_.mixed_steps = chance(0.4);
  config_.overlap = chance(0.7);
  config_.expected_output_floor_tokens = draw(2, 6);
  config_.output_insertion_tokens = draw(1, 20);
  faults_ = chance(0.3);

  settings_.limits = {.rows = config_.max_running_requests,
                      .max_tokens = std::max(config_.max_prefill_tokens, config_.max_running_requests),
                      .max_model_len = 96,
                      .num_pages = config_.num_pages,
                      .page_size = config_.page_size,
                      .cache_groups = 1,
                      .vocab_size = kVocab};
  settings_.model = {.vocab_size = kVocab, .eos_interval = chance(0.5) ? draw(4, 40) : 0};
  settings_.seed = seed ^ 0x5EED;
  settings_.delay_probability = chance(0.3) ? 1 : 0.5;
  if (faults_) {
    settings_.row_failure_probability = chance(0.7) ? 0.06 : 0;
    settings_.reject_probability = chance(0.5) ? 0.02 : 0;
  }
  executor_ = std::make_unique<FakeExecutor>(settings_);
  scheduler_ = std::make_unique<Scheduler>(*executor_, config_, [this](const RequestOutput& output) { on_output(output); });
  const int64_t bases = draw(1, 3);
  for (int64_t i = 0; i < bases; ++i) {
    std::vector<int32_t> base(static_cast<size_t>(draw(1, 50)));
    for (int32_t& id : base) id = static_cast<int32_t>(draw(1, kVocab - 1));
    bases_.push_back(std::move(base));
  }
}

SchedulerFuzz::~SchedulerFuzz() = default;

std::string SchedulerFuzz::describe() const {
  return fmt::format("seed {}: page size {}, {} pages, {} rows, budget {}, {}, {}, {}{}{}{}, step {}", seed_, config_.page_size,
                     config_.num_pages, config_.max_running_requests, config_.max_prefill_tokens,
                     config_.cache == PrefixCacheKind::kRadix ? "radix" : "naive", config_.policy == SchedulePolicy::kLpm ? "lpm" : "fcfs",
                     config_.admission == AdmissionPolicy::kFull ? "full" : "expected", config_.mixed_steps ? ", mixed" : "",
                     config_.overlap ? ", overlap" : "", faults_ ? ", faults" : "", steps_);
}

void SchedulerFuzz::run(int steps) {
  const double arrival = std::uniform_real_distribution<>(0.02, 0.6)(random_);
  const double abort = chance(0.5) ? 0.05 : 0;
  for (int i = 0; i < steps && error_.empty(); ++i) {
    if (open_.empty() || (open_.size() < kMaxOpen && chance(arrival))) {
      for (int64_t burst = chance(0.2) ? draw(2, 6) : 1; burst > 0; --burst) arrive();
    }
    if (abort > 0 && !open_.empty() && chance(abort)) {
      auto victim = open_.begin();
      std::advance(victim, draw(0, static_cast<int64_t>(open_.size()) - 1));
      victim->second.request->abort = true;
    }
    if (abort > 0 && chance(0.002)) {
      for (auto& [id, open] : open_) open.request->abort = true;
      scheduler_->abort_all();
      if (scheduler_->has_work()) set_error("work is left after abort_all()");
    }
    step();
  }
  for (int i = 0; scheduler_->has_work() && error_.empty(); ++i) {
    if (i > 20000) set_error("the requests are not answered");
    step();
  }
  if (error_.empty() && !open_.empty()) set_error(fmt::format("{} requests were never answered", open_.size()));
  if (error_.empty() && scheduler_->pages().owned() + scheduler_->pages().retired() + scheduler_->rows().owned() > 0) {
    set_error("pages or rows are held with no request left");
  }
}

void SchedulerFuzz::step() {
  ++steps_;
  try {
    scheduler_->step();
    scheduler_->check_integrity();
  } catch (const std::exception& error) {
    set_error(error.what());
  }
  if (!executor_->violations().empty()) set_error(executor_->violations().front());
  idle_steps_ = executor_->computed_tokens() != last_computed_ || !scheduler_->has_work() ? 0 : idle_steps_ + 1;
  last_computed_ = executor_->computed_tokens();
  if (idle_steps_ > kMaxIdleSteps && !faults_) set_error("no progress");
}

bool SchedulerFuzz::never_fits(const Request& request) const {
  return static_cast<int64_t>(request.prompt_token_ids.size()) + request.max_tokens > config_.num_pages * config_.page_size;
}

void SchedulerFuzz::arrive() {
  std::vector<int32_t> prompt;
  if (!past_.empty() && chance(0.25)) {
    prompt = past_[static_cast<size_t>(draw(0, static_cast<int64_t>(past_.size()) - 1))];  // a next turn
  } else if (chance(0.7)) {
    const auto& base = bases_[static_cast<size_t>(draw(0, static_cast<int64_t>(bases_.size()) - 1))];
    prompt.assign(base.begin(),
                  base.begin() + draw(chance(0.5) ? static_cast<int64_t>(base.size()) : 0, static_cast<int64_t>(base.size())));
  }
  const int64_t tail = chance(0.3) ? 0 : draw(0, 12);
  for (int64_t i = 0; i < tail || prompt.empty(); ++i) prompt.push_back(static_cast<int32_t>(draw(1, kVocab - 1)));
  prompt.resize(std::min<size_t>(prompt.size(), static_cast<size_t>(settings_.limits.max_model_len) - 1));
  auto first = make_request(prompt);
  const int64_t siblings = chance(0.15) ? draw(1, 3) : 0;
  for (int64_t i = 1; i <= siblings; ++i) {
    auto sibling = std::make_shared<Request>();
    sibling->id = next_id_++;
    sibling->prompt_token_ids = first->prompt_token_ids;
    sibling->sampling = first->sampling;
    sibling->sampling.choice = static_cast<int32_t>(i);
    sibling->max_tokens = first->max_tokens;
    sibling->eos_token_ids = first->eos_token_ids;
    sibling->stop_token_ids = first->stop_token_ids;
    sibling->stop = first->stop;
    sibling->tokenizer = first->tokenizer;
    sibling->prompt_logprobs = first->prompt_logprobs;
    sibling->priority = first->priority;
    sibling->token_mask = first->token_mask;
    open_[sibling->id] = {.request = sibling, .hash = FakeModel::hash(sibling->prompt_token_ids), .may_fail = never_fits(*sibling)};
    scheduler_->add(sibling);
  }
}

std::shared_ptr<Request> SchedulerFuzz::make_request(const std::vector<int32_t>& prompt) {
  auto request = std::make_shared<Request>();
  request->id = next_id_++;
  request->prompt_token_ids = prompt;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t rest = settings_.limits.max_model_len - prompt_tokens;
  request->max_tokens = std::min(chance(0.2) ? draw(1, 2) : draw(1, 40), rest);
  const int64_t pool = config_.num_pages * config_.page_size;
  // Mostly what fits: that the others are refused is soon known.
  if (prompt_tokens + request->max_tokens > pool && chance(0.9)) {
    if (prompt_tokens >= pool) request->prompt_token_ids.resize(static_cast<size_t>(std::max<int64_t>(pool / 2, 1)));
    request->max_tokens =
        std::max<int64_t>(std::min(request->max_tokens, pool - static_cast<int64_t>(request->prompt_token_ids.size())), 1);
  }
  request->sampling.prompt_tokens = static_cast<int32_t>(request->prompt_token_ids.size());
  request->sampling.seed = static_cast<uint64_t>(draw(0, 2));
  if (chance(0.8)) request->eos_token_ids = {FakeModel::kEosToken};
  if (chance(0.2)) request->stop_token_ids = {static_cast<int32_t>(draw(1, 8)), static_cast<int32_t>(draw(9, 20))};
  if (chance(0.1)) {
    request->sampling.min_tokens = static_cast<int32_t>(draw(1, request->max_tokens));
    request->sampling.banned_before_min = request->eos_token_ids;
    auto& banned = request->sampling.banned_before_min;
    banned.insert(banned.end(), request->stop_token_ids.begin(), request->stop_token_ids.end());
  }
  if (chance(0.1)) request->sampling.logprobs = 0;
  if (chance(0.1)) request->prompt_logprobs = 0;
  if (chance(0.1)) request->priority = static_cast<int>(draw(-1, 1));
  if (chance(0.1)) request->cache_namespace = 7;
  if (chance(0.08)) {
    request->token_mask = [](std::span<const int32_t> output, std::span<uint32_t> mask) { mask_by_last_token(output, kVocab, mask); };
  }
  if (request->sampling.min_tokens == 0 && chance(0.15)) add_stop_strings(*request);
  Open open{.request = request, .hash = FakeModel::hash(request->prompt_token_ids)};
  open.may_fail = never_fits(*request);
  if (chance(0.01)) {
    request->deadline = std::chrono::steady_clock::now();
    open.may_fail = true;
  }
  open_[request->id] = std::move(open);
  scheduler_->add(request);
  return request;
}

/// Strings of what the request will give, so that they come up, and of what it will not.
void SchedulerFuzz::add_stop_strings(Request& request) {
  request.tokenizer = tokenizer();
  std::vector<int32_t> sequence = request.prompt_token_ids;
  for (int64_t i = 0; i < request.max_tokens; ++i) sequence.push_back(settings_.model.next_token(sequence, request.sampling));
  const std::string text = text_of(std::span<const int32_t>(sequence).subspan(request.prompt_token_ids.size()));
  for (int64_t strings = draw(1, 3); strings > 0; --strings) {
    const auto at = static_cast<size_t>(draw(0, static_cast<int64_t>(text.size()) - 1));
    std::string stop = text.substr(at, static_cast<size_t>(draw(1, 4)));
    if (chance(0.4)) stop.back() = '~';
    request.stop.push_back(std::move(stop));
  }
}

void SchedulerFuzz::on_output(const RequestOutput& output) {
  const auto found = open_.find(output.request.id);
  if (found == open_.end()) return set_error(fmt::format("request {} was answered again", output.request.id));
  Open& open = found->second;
  const Request& request = output.request;
  for (const int32_t id : output.token_ids) {
    const auto tokens = static_cast<int64_t>(request.result.token_ids.size() - output.token_ids.size());
    std::vector<uint32_t> mask;
    if (request.token_mask) {
      mask.assign((kVocab + 31) / 32, 0);
      mask_by_last_token(std::span(request.result.token_ids).first(static_cast<size_t>(tokens)), kVocab, mask);
    }
    const int64_t length = static_cast<int64_t>(request.prompt_token_ids.size()) + tokens;
    const int32_t expected = settings_.model.next_token(open.hash, length, request.sampling, mask);
    if (id != expected) {
      return set_error(fmt::format("request {}: output token {} is {}, the model says {}", request.id, tokens, id, expected));
    }
    open.hash = FakeModel::extend_hash(open.hash, id);
  }
  if (!output.finished) return;
  check_end(open);
  open_.erase(found);
}

void SchedulerFuzz::check_end(const Open& open) {
  const Request& request = *open.request;
  const RequestResult& result = request.result;
  const auto tokens = static_cast<int64_t>(result.token_ids.size());
  const auto ends = [&](int32_t id) {
    const auto in = [id](const std::vector<int32_t>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
    return in(request.eos_token_ids) || in(request.stop_token_ids);
  };
  const bool by_string = std::holds_alternative<std::string>(result.matched_stop);
  if (request.tokenizer) {
    const bool hidden = tokens > 0 && ends(result.token_ids.back());
    const std::string text = text_of(std::span(result.token_ids).first(static_cast<size_t>(tokens - (hidden ? 1 : 0))));
    const auto stop = find_stop(text, request.stop);
    if (by_string != stop.has_value() || (stop && stop->first != text.size())) {
      return set_error(fmt::format("request {}: '{}' and its stop strings do not agree", request.id, text));
    }
    if (stop && std::get<std::string>(result.matched_stop) != request.stop[stop->second]) {
      return set_error(fmt::format("request {}: not the stop string that was complete", request.id));
    }
    const std::string shown = stop ? text.substr(0, text.size() - request.stop[stop->second].size()) : text;
    if (result.text != shown && result.finish_reason != FinishReason::kError) {
      return set_error(fmt::format("request {}: the text is '{}', not '{}'", request.id, result.text, shown));
    }
  }
  for (int64_t i = 0; i + 1 < tokens; ++i) {
    if (ends(result.token_ids[static_cast<size_t>(i)])) return set_error(fmt::format("request {} went on past its end", request.id));
  }
  if (tokens > request.max_tokens) return set_error(fmt::format("request {} has {} tokens of {}", request.id, tokens, request.max_tokens));
  if (past_.size() < 8) {
    past_.push_back(request.prompt_token_ids);
    past_.back().insert(past_.back().end(), result.token_ids.begin(), result.token_ids.end());
  }
  switch (result.finish_reason) {
    case FinishReason::kStop:
      ++(by_string ? endings_.stop_string : endings_.stop);
      if (tokens == 0 || (!by_string && !ends(result.token_ids.back())))
        return set_error(fmt::format("request {} did not stop", request.id));
      break;
    case FinishReason::kLength:
      ++endings_.length;
      if (tokens != request.max_tokens || ends(result.token_ids.back())) {
        return set_error(fmt::format("request {} ended by length after {} tokens", request.id, tokens));
      }
      break;
    case FinishReason::kAbort:
      ++endings_.abort;
      if (!request.abort) set_error(fmt::format("request {} was aborted by nobody", request.id));
      return;
    case FinishReason::kError:
      ++endings_.error;
      if (!faults_ && !open.may_fail) set_error(fmt::format("request {}: {}", request.id, result.error ? result.error->message : "?"));
      if (!result.error) set_error(fmt::format("request {} failed without a message", request.id));
      return;
  }
  if (never_fits(request)) {
    return set_error(fmt::format("request {} can never fit and was not refused", request.id));
  }
  if (request.sampling.logprobs >= 0 && static_cast<int64_t>(result.logprobs.size()) != tokens) {
    return set_error(fmt::format("request {}: {} log-probabilities", request.id, result.logprobs.size()));
  }
  if (request.prompt_logprobs < 0) return;
  const auto& logprobs = result.prompt_logprobs;
  if (logprobs.size() != request.prompt_token_ids.size() || logprobs[0]) {
    return set_error(fmt::format("request {}: {} prompt log-probabilities", request.id, logprobs.size()));
  }
  uint64_t hash = 0;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const int32_t id = request.prompt_token_ids[i];
    if (i > 0 && (!logprobs[i] || logprobs[i]->token_id != id || logprobs[i]->logprob != FakeModel::logprob(hash, id))) {
      return set_error(fmt::format("request {}: log-probability of prompt token {}", request.id, i));
    }
    hash = FakeModel::extend_hash(hash, id);
  }
}

}  // namespace minisgl::test
