#include "scheduler/trace_runner.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "scheduler/fuzz.h"

namespace minisgl::test {

namespace {

constexpr int64_t kVocab = 100;

[[noreturn]] void wrong(const std::string& message) {
  throw std::runtime_error(message);
}

int64_t to_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) wrong(fmt::format("'{}' is not a number", text));
  return value;
}

/// "key=value" -> both; "key" -> an empty value.
std::pair<std::string, std::string> split(const std::string& word) {
  const size_t at = word.find('=');
  return at == std::string::npos ? std::pair(word, std::string()) : std::pair(word.substr(0, at), word.substr(at + 1));
}

}  // namespace

std::string TraceRunner::run(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream in(line.substr(0, line.find('#')));
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) continue;
    try {
      execute(words);
      if (!wrong_.empty()) wrong(wrong_);
    } catch (const std::exception& error) {
      return fmt::format("line {}: {}", number, error.what());
    }
  }
  return {};
}

void TraceRunner::execute(const Words& words) {
  const std::string& command = words[0];
  if (command == "config") return configure(words);
  if (scheduler_ == nullptr) wrong("a trace begins with config");
  const uint64_t next_step = static_cast<uint64_t>(scheduler_->stats().steps) + 1;
  if (command == "arrive" && words.size() >= 3) {
    arrive(words);
  } else if (command == "step") {
    for (int64_t i = words.size() > 1 ? to_int(words[1]) : 1; i > 0; --i) step();
  } else if (command == "finish") {
    for (int i = 0; scheduler_->has_work(); ++i) {
      if (i > 10000) wrong("the requests are never answered");
      step();
    }
  } else if (command == "abort" && words.size() == 2) {
    named(words[1]).request->abort = true;
  } else if (command == "abort_all") {
    scheduler_->abort_all();
    scheduler_->check_integrity();
  } else if (command == "reject") {
    executor_->rejected_steps.insert(next_step);
  } else if (command == "nan") {
    executor_->nan_steps.insert(next_step);
  } else if (command == "fatal") {
    executor_->fatal_step = next_step;
  } else if (command == "expect" && words.size() >= 3) {
    expect(words);
  } else {
    wrong(fmt::format("no such command: {}", command));
  }
}

void TraceRunner::configure(const Words& words) {
  SchedulerConfig config{.max_running_requests = 8,
                         .num_pages = 64,
                         .page_size = 4,
                         .max_prefill_tokens = 64,
                         .vocab_size = kVocab,
                         .admission = AdmissionPolicy::kFull,
                         .overlap = false,
                         .expected_output_floor_tokens = 2};
  settings_.model.vocab_size = kVocab;
  settings_.delay_probability = 1;
  for (size_t i = 1; i < words.size(); ++i) {
    const auto [key, value] = split(words[i]);
    if (key == "page_size") {
      config.page_size = to_int(value);
    } else if (key == "pages") {
      config.num_pages = to_int(value);
    } else if (key == "rows") {
      config.max_running_requests = to_int(value);
    } else if (key == "budget") {
      config.max_prefill_tokens = to_int(value);
    } else if (key == "floor") {
      config.expected_output_floor_tokens = to_int(value);
    } else if (key == "insertion") {
      config.output_insertion_tokens = to_int(value);
    } else if (key == "eos") {
      settings_.model.eos_interval = to_int(value);
    } else if (key == "delay") {
      settings_.delay_probability = static_cast<double>(to_int(value));
    } else if (key == "overlap" || key == "mixed") {
      (key == "overlap" ? config.overlap : config.mixed_steps) = to_int(value) != 0;
    } else if (key == "cache" && (value == "radix" || value == "naive")) {
      config.cache = value == "radix" ? PrefixCacheKind::kRadix : PrefixCacheKind::kNaive;
    } else if (key == "policy" && (value == "fcfs" || value == "lpm")) {
      config.policy = value == "fcfs" ? SchedulePolicy::kFcfs : SchedulePolicy::kLpm;
    } else if (key == "admission" && (value == "full" || value == "expected")) {
      config.admission = value == "full" ? AdmissionPolicy::kFull : AdmissionPolicy::kExpected;
    } else {
      wrong(fmt::format("no such setting: {}", words[i]));
    }
  }
  settings_.limits = {.rows = config.max_running_requests,
                      .max_tokens = std::max(config.max_prefill_tokens, config.max_running_requests),
                      .max_model_len = 512,
                      .num_pages = config.num_pages,
                      .page_size = config.page_size,
                      .cache_groups = 1,
                      .vocab_size = kVocab};
  executor_ = std::make_unique<FakeExecutor>(settings_);
  executor_->keep_plans = true;
  scheduler_ = std::make_unique<Scheduler>(*executor_, config, [this](const RequestOutput& output) { on_output(output); });
}

void TraceRunner::arrive(const Words& words) {
  auto request = std::make_shared<Request>();
  request->id = names_.size();
  request->max_tokens = 1;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = split(words[i]);
    if (key == "prompt") {
      request->prompt_token_ids = parse_ids(value);
    } else if (key == "max") {
      request->max_tokens = to_int(value);
    } else if (key == "eos") {
      request->eos_token_ids = {FakeModel::kEosToken};
    } else if (key == "stop") {
      request->stop_token_ids = parse_ids(value);
    } else if (key == "min") {
      request->sampling.min_tokens = static_cast<int32_t>(to_int(value));
      request->sampling.banned_before_min = {FakeModel::kEosToken};
    } else if (key == "choice") {
      request->sampling.choice = static_cast<int32_t>(to_int(value));
    } else if (key == "priority") {
      request->priority = static_cast<int>(to_int(value));
    } else if (key == "namespace") {
      request->cache_namespace = static_cast<CacheNamespace>(to_int(value));
    } else if (key == "prompt_logprobs") {
      request->prompt_logprobs = 0;
    } else if (key == "late") {
      request->deadline = std::chrono::steady_clock::now();
    } else if (key == "mask") {
      request->token_mask = [](std::span<const int32_t> output, std::span<uint32_t> mask) { mask_by_last_token(output, kVocab, mask); };
    } else {
      wrong(fmt::format("no such property of a request: {}", words[i]));
    }
  }
  if (request->prompt_token_ids.empty()) wrong("the request has no prompt");
  request->sampling.prompt_tokens = static_cast<int32_t>(request->prompt_token_ids.size());
  names_.push_back(words[1]);
  if (!requests_.emplace(words[1], Named{.request = request}).second) wrong(fmt::format("{} has arrived before", words[1]));
  scheduler_->add(request);
}

void TraceRunner::step() {
  scheduler_->step();
  scheduler_->check_integrity();
  if (!executor_->violations().empty()) wrong(executor_->violations().front());
}

void TraceRunner::on_output(const RequestOutput& output) {
  const Request& request = output.request;
  Named& named = requests_.at(names_[request.id]);
  if (named.finished) wrong_ = fmt::format("{} was answered again", names_[request.id]);
  if (!output.finished) return;
  named.finished = true;
  ended_.push_back(names_[request.id]);
  std::vector<int32_t> sequence = request.prompt_token_ids;
  for (size_t i = 0; i < request.result.token_ids.size(); ++i) {
    std::vector<uint32_t> mask;
    if (request.token_mask) {
      mask.assign((kVocab + 31) / 32, 0);
      mask_by_last_token(std::span(request.result.token_ids).first(i), kVocab, mask);
    }
    const int32_t expected = settings_.model.next_token(sequence, request.sampling, mask);
    if (request.result.token_ids[i] != expected) {
      wrong_ = fmt::format("{}: output token {} is {}, the model says {}", names_[request.id], i, request.result.token_ids[i], expected);
    }
    sequence.push_back(expected);
  }
}

std::vector<int32_t> TraceRunner::parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    if (part[0] == '@') {
      const Request& request = *named(part.substr(1)).request;
      ids.insert(ids.end(), request.prompt_token_ids.begin(), request.prompt_token_ids.end());
      ids.insert(ids.end(), request.result.token_ids.begin(), request.result.token_ids.end());
    } else if (const size_t dots = part.find(".."); dots != std::string::npos) {
      const int64_t last = to_int(std::string_view(part).substr(dots + 2));
      for (int64_t id = to_int(std::string_view(part).substr(0, dots)); id <= last; ++id) ids.push_back(static_cast<int32_t>(id % kVocab));
    } else if (const size_t times = part.find('*'); times != std::string::npos) {
      ids.insert(ids.end(), static_cast<size_t>(to_int(std::string_view(part).substr(times + 1))),
                 static_cast<int32_t>(to_int(std::string_view(part).substr(0, times))));
    } else {
      ids.push_back(static_cast<int32_t>(to_int(part)));
    }
  }
  return ids;
}

TraceRunner::Named& TraceRunner::named(const std::string& name) {
  const auto found = requests_.find(name);
  if (found == requests_.end()) wrong(fmt::format("no request {}", name));
  return found->second;
}

int64_t TraceRunner::counter(const std::string& name) const {
  const Scheduler::Stats& stats = scheduler_->stats();
  const std::map<std::string, int64_t> counters = {{"waiting", scheduler_->waiting()},
                                                   {"running", scheduler_->running()},
                                                   {"free_pages", scheduler_->pages().free()},
                                                   {"cached_pages", scheduler_->prefix_cache().cached_pages()},
                                                   {"computed", executor_->computed_tokens()},
                                                   {"launched", stats.steps},
                                                   {"preemptions", stats.preemptions},
                                                   {"holds", stats.holds},
                                                   {"dropped", stats.dropped},
                                                   {"sat_out", stats.sat_out},
                                                   {"matches", stats.prefix_matches}};
  const auto found = counters.find(name);
  if (found == counters.end()) wrong(fmt::format("no such counter: {}", name));
  return found->second;
}

void TraceRunner::expect(const Words& words) {
  const std::string& subject = words[1];
  const auto compare = [&](const std::string& actual, const std::string& expected) {
    if (actual != expected) wrong(fmt::format("{} is {}, expected was {}", subject, actual, expected));
  };
  if (subject == "plan") return expect_plan(words);
  if (subject == "order") {
    std::string order;
    std::string expected;
    for (const std::string& name : ended_) order += name + " ";
    for (size_t i = 2; i < words.size(); ++i) expected += words[i] + " ";
    return compare(order, expected);
  }
  if (words.size() == 3) return compare(std::to_string(counter(subject)), words[2]);
  const Named& request = named(words[2]);
  const RequestResult& result = request.request->result;
  if (subject == "ended") {
    constexpr const char* kNames[] = {"stop", "length", "abort", "error"};  // of FinishReason
    compare(request.finished ? kNames[static_cast<size_t>(result.finish_reason)] : "open", words[3]);
  } else if (subject == "tokens") {
    compare(std::to_string(result.token_ids.size()), words[3]);
  } else if (subject == "cached") {
    compare(std::to_string(result.cached_tokens), words[3]);
  } else {
    wrong(fmt::format("nothing is known of {}", subject));
  }
}

void TraceRunner::expect_plan(const Words& words) const {
  if (executor_->plans.empty()) wrong("no step was launched");
  const StepPlan& plan = executor_->plans.back();
  for (size_t i = 2; i < words.size(); ++i) {
    const auto [key, value] = split(words[i]);
    const int64_t actual = key == "prefill"  ? plan.num_prefill_rows
                           : key == "decode" ? static_cast<int64_t>(plan.rows.size()) - plan.num_prefill_rows
                           : key == "tokens" ? plan.num_tokens()
                                             : -1;
    if (actual != to_int(value)) wrong(fmt::format("the plan has {}={}, expected was {}", key, actual, value));
  }
}

}  // namespace minisgl::test
