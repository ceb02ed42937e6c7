#include "scheduler/fake_executor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minisgl::test {

namespace {

constexpr uint64_t kPoison = 0xDEADBEEFDEADBEEF;  // written by a row that failed: whoever reads it is wrong
constexpr size_t kMaxViolations = 20;

uint64_t mix(uint64_t x) {  // SplitMix64's finaliser
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

uint64_t FakeModel::extend_hash(uint64_t prefix_hash, int32_t token) {
  return mix(prefix_hash ^ (static_cast<uint64_t>(static_cast<uint32_t>(token)) << 20));
}

uint64_t FakeModel::hash(std::span<const int32_t> tokens) {
  uint64_t h = 0;
  for (const int32_t token : tokens) h = extend_hash(h, token);
  return h;
}

int32_t FakeModel::next_token(uint64_t prefix_hash, int64_t length, const RowSampling& sampling, std::span<const uint32_t> mask) const {
  const uint64_t r = mix(prefix_hash ^ mix(sampling.seed * 131 + static_cast<uint64_t>(sampling.choice)));
  const auto vocab = static_cast<uint64_t>(vocab_size);
  auto token = static_cast<int32_t>(1 + (r >> 16) % (vocab - 1));
  if (eos_interval > 0 && r % static_cast<uint64_t>(eos_interval) == 0) token = kEosToken;
  const bool banned = length - sampling.prompt_tokens < sampling.min_tokens;
  for (uint64_t tried = 0; tried < vocab; ++tried, token = static_cast<int32_t>((token + 1) % vocab_size)) {
    if (banned && contains(sampling.banned_before_min, token)) continue;
    const auto bit = static_cast<size_t>(token);
    if (!mask.empty() && ((mask[bit / 32] >> (bit % 32)) & 1u) == 0) continue;
    return token;
  }
  return -1;
}

int32_t FakeModel::next_token(std::span<const int32_t> sequence, const RowSampling& sampling, std::span<const uint32_t> mask) const {
  return next_token(hash(sequence), static_cast<int64_t>(sequence.size()), sampling, mask);
}

float FakeModel::logprob(uint64_t prefix_hash, int32_t token) {
  return -static_cast<float>(extend_hash(prefix_hash, token) % 1000) / 16;
}

class FakeExecutor::FakeStep final : public Step {
 public:
  explicit FakeStep(FakeExecutor& executor) : executor_(executor) {}

  const StepResult& wait(std::chrono::steady_clock::time_point) override {
    executor_.run_until(this);
    return executor_.fatal_ && !done ? executor_.fatal_result_ : result;
  }

  void sample(const LateInputs& inputs) override {
    if (!plan.late_sampling || masks_ready) executor_.violation("step {}: masks that nobody waits for", plan.step);
    const auto words = static_cast<size_t>((executor_.settings_.model.vocab_size + 31) / 32);
    if (!inputs.masks.empty() && inputs.masks.size() != plan.samples.size() * words) {
      executor_.violation("step {}: {} mask words for {} samples", plan.step, inputs.masks.size(), plan.samples.size());
    }
    masks.assign(inputs.masks.begin(), inputs.masks.end());
    masks_ready = true;
  }

  void release() noexcept override {
    masks_ready = true;
    executor_.run_until(this);
    std::erase(executor_.held_, this);
    --executor_.in_flight_;
    held = false;
  }

  StepPlan plan;
  StepResult result;
  std::vector<uint32_t> masks;
  std::vector<int32_t> page_reader;  // [page]: the row that refers to it, -1 none, -2 several
  std::vector<uint64_t> last_hash;   // scratch, [token] hash of the sequence up to the token
  bool masks_ready = false;
  bool rejected = false;
  bool nan = false;
  bool forwarded = false;
  bool done = false;
  bool held = false;

 private:
  FakeExecutor& executor_;
};

FakeExecutor::FakeExecutor(const Settings& settings)
    : settings_(settings),
      validator_(settings.limits),
      random_(settings.seed),
      rows_(static_cast<size_t>(settings.limits.rows)),
      slot_hash_(static_cast<size_t>(settings.limits.num_pages * settings.limits.page_size), kPoison),
      launched_pages_(static_cast<size_t>(settings.limits.rows)),
      launched_tainted_(static_cast<size_t>(settings.limits.rows), true) {
  const auto max_pages = static_cast<size_t>((settings.limits.max_model_len + settings.limits.page_size - 1) / settings.limits.page_size);
  for (Row& row : rows_) {
    row.tokens.assign(static_cast<size_t>(settings.limits.max_model_len), -1);
    row.pages.assign(max_pages, -1);
    row.tainted = true;
  }
  for (auto& pages : launched_pages_) pages.assign(max_pages, -1);
  for (int i = 0; i < settings.max_in_flight + 1; ++i) steps_.push_back(std::make_unique<FakeStep>(*this));
  fatal_result_.status = StepResult::Status::kFatal;
  fatal_result_.message = "the fake executor was told to die";
}

FakeExecutor::~FakeExecutor() = default;

template <typename... Args>
void FakeExecutor::violation(fmt::format_string<Args...> format, Args&&... args) {
  if (violations_.size() < kMaxViolations) violations_.push_back(fmt::format(format, std::forward<Args>(args)...));
}

StepHandle FakeExecutor::launch(const StepPlan& plan) {
  if (const std::string error = validator_.check(plan); !error.empty()) violation("step {} is not valid: {}", plan.step, error);
  if (in_flight_ >= settings_.max_in_flight) violation("step {}: more than {} steps in flight", plan.step, settings_.max_in_flight);
  if (keep_plans) plans.push_back(plan);
  FakeStep* step = nullptr;
  for (const auto& candidate : steps_) {
    if (!candidate->held) step = candidate.get();
  }
  MINISGL_CHECK(step != nullptr);
  step->plan = plan;
  step->result.clear();
  step->masks.clear();
  step->masks_ready = step->forwarded = step->done = false;
  step->held = true;
  step->rejected = rejected_steps.contains(plan.step) || chance(settings_.reject_probability);
  step->nan = nan_steps.contains(plan.step);
  check_hazards(plan);
  if (step->rejected) {
    for (const StepPlan::Row& row : plan.rows) launched_tainted_[static_cast<size_t>(row.row)] = true;
  } else {
    for (const auto& delta : plan.sampling_deltas) launched_tainted_[static_cast<size_t>(delta.row)] = false;
    for (const auto& delta : plan.page_deltas) {
      launched_pages_[static_cast<size_t>(delta.row)][static_cast<size_t>(delta.page_index)] = delta.page;
    }
  }
  record_readers(*step);
  ++in_flight_;
  held_.push_back(step);
  queue_.push_back(step);
  if (!chance(settings_.delay_probability)) run_until(step);
  return StepHandle(step);
}

/// What steps in flight refer to must stay as it is: a row is not set up anew, a page is not written by another row.
void FakeExecutor::check_hazards(const StepPlan& plan) {
  const int64_t page_size = settings_.limits.page_size;
  for (const FakeStep* step : held_) {
    for (const auto& delta : plan.sampling_deltas) {
      for (const StepPlan::Row& row : step->plan.rows) {
        if (row.row == delta.row) violation("step {}: row {} is handed out while step {} uses it", plan.step, row.row, step->plan.step);
      }
    }
    size_t token = 0;
    for (const StepPlan::Row& row : plan.rows) {
      for (int32_t i = 0; i < row.num_tokens; ++i, ++token) {
        const auto page = static_cast<size_t>(plan.slots[token] / page_size);
        const int32_t reader = step->page_reader[page];
        if (reader != -1 && reader != row.row) {
          violation("step {}: row {} writes page {} while step {} of row {} refers to it", plan.step, row.row, page, step->plan.step,
                    reader);
        }
      }
    }
  }
}

void FakeExecutor::record_readers(FakeStep& step) {
  const int64_t page_size = settings_.limits.page_size;
  step.page_reader.assign(static_cast<size_t>(settings_.limits.num_pages), -1);
  for (const StepPlan::Row& row : step.plan.rows) {
    if (launched_tainted_[static_cast<size_t>(row.row)]) continue;
    const auto& pages = launched_pages_[static_cast<size_t>(row.row)];
    for (int64_t i = 0; i * page_size < row.position + row.num_tokens; ++i) {
      const int32_t page = pages[static_cast<size_t>(i)];
      if (page < 0) continue;  // run() says so
      int32_t& reader = step.page_reader[static_cast<size_t>(page)];
      reader = reader == -1 ? row.row : -2;
    }
  }
}

void FakeExecutor::run_until(const FakeStep* last) {
  if (last->done) return;
  while (!queue_.empty()) {
    FakeStep* step = queue_.front();
    if (!run(*step)) return;
    queue_.pop_front();
    if (step == last) return;
  }
}

/// False: the step waits for masks.
bool FakeExecutor::run(FakeStep& step) {
  if (fatal_step != 0 && step.plan.step >= fatal_step) fatal_ = true;
  if (fatal_) return true;
  if (step.rejected) {
    step.result.status = StepResult::Status::kRejected;
    step.result.message = fmt::format("step {} was rejected on order", step.plan.step);
    for (const StepPlan::Row& row : step.plan.rows) rows_[static_cast<size_t>(row.row)].tainted = true;
    step.done = true;
    return true;
  }
  if (!step.forwarded) forward(step);
  step.forwarded = true;
  if (step.plan.late_sampling && !step.masks_ready) return false;
  sample(step);
  step.done = true;
  return true;
}

void FakeExecutor::forward(FakeStep& step) {
  const StepPlan& plan = step.plan;
  const int64_t page_size = settings_.limits.page_size;
  for (const auto& delta : plan.page_deltas)
    rows_[static_cast<size_t>(delta.row)].pages[static_cast<size_t>(delta.page_index)] = delta.page;
  for (const auto& delta : plan.sampling_deltas) {
    Row& row = rows_[static_cast<size_t>(delta.row)];
    row.sampling = delta.sampling;
    row.tainted = false;
    // Whatever the row's last request left is gone: what the new one does not write is seen.
    std::fill(row.tokens.begin(), row.tokens.end(), -1);
  }
  for (const auto& write : plan.token_writes) {
    std::copy_n(plan.token_ids.begin() + write.begin, write.count, rows_[static_cast<size_t>(write.row)].tokens.begin() + write.position);
  }
  step.last_hash.assign(plan.slots.size(), 0);
  size_t token = 0;
  for (const StepPlan::Row& batch_row : plan.rows) {
    Row& row = rows_[static_cast<size_t>(batch_row.row)];
    computed_tokens_ += batch_row.num_tokens;
    uint64_t hash = 0;
    for (int32_t p = 0; p < batch_row.position + batch_row.num_tokens; ++p) {
      const int32_t id = row.tokens[static_cast<size_t>(p)];
      const int32_t page = row.pages[static_cast<size_t>(p / page_size)];
      const int64_t slot = page * page_size + p % page_size;
      hash = FakeModel::extend_hash(hash, id);
      if (p < batch_row.position) {
        if (!row.tainted && (page < 0 || id < 0 || slot_hash_[static_cast<size_t>(slot)] != hash)) {
          violation("step {}: row {} reads position {} from page {} and finds {}", plan.step, batch_row.row, p, page,
                    id < 0 ? "no token" : "the KV of another sequence");
          row.tainted = true;
        }
        continue;
      }
      if (!row.tainted && (page < 0 || slot != plan.slots[token])) {
        violation("step {}: row {} writes position {} to slot {}, its page table says {}", plan.step, batch_row.row, p, plan.slots[token],
                  slot);
      }
      if (!row.tainted && id < 0) violation("step {}: row {} has no token at position {}", plan.step, batch_row.row, p);
      slot_hash_[static_cast<size_t>(plan.slots[token])] = row.tainted ? kPoison : hash;
      step.last_hash[token++] = hash;
    }
  }
}

void FakeExecutor::sample(FakeStep& step) {
  const StepPlan& plan = step.plan;
  StepResult& result = step.result;
  const auto words = static_cast<size_t>((settings_.model.vocab_size + 31) / 32);
  const auto hash_of = [&](int32_t logit_row) {
    return step.last_hash[static_cast<size_t>(plan.logit_rows[static_cast<size_t>(logit_row)])];
  };
  for (const auto& target : plan.targets) {
    result.targets.push_back({.token_logprob = FakeModel::logprob(hash_of(target.logit_row), target.token_id)});
  }
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const auto& sample = plan.samples[i];
    Row& row = rows_[static_cast<size_t>(sample.row)];
    const auto mask = step.masks.empty() ? std::span<const uint32_t>() : std::span<const uint32_t>(step.masks).subspan(i * words, words);
    int32_t id = settings_.model.next_token(hash_of(sample.logit_row), sample.position, row.sampling, mask);
    RowStatus status = id < 0 ? RowStatus::kEmptyMask : RowStatus::kOk;
    if (step.nan || chance(settings_.row_failure_probability)) {
      id = -1;
      status = RowStatus::kNanLogits;
    }
    if (id < 0) {
      row.tainted = true;
      // What the row wrote in this step is worth nothing.
      size_t token = 0;
      for (const StepPlan::Row& batch_row : plan.rows) {
        for (int32_t t = 0; t < batch_row.num_tokens; ++t, ++token) {
          if (batch_row.row == sample.row) slot_hash_[static_cast<size_t>(plan.slots[token])] = kPoison;
        }
      }
    } else {
      row.tokens[static_cast<size_t>(sample.position)] = id;
    }
    result.token_ids.push_back(id);
    result.row_status.push_back(status);
    result.logprobs.push_back({.token_logprob = id < 0 ? 0 : FakeModel::logprob(hash_of(sample.logit_row), id)});
  }
}

}  // namespace minisgl::test
