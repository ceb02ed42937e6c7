#include "engine/cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/error.h"

namespace minisgl {

void StepResult::clear() {
  status = Status::kOk;
  message.clear();
  token_ids.clear();
  row_status.clear();
  logprobs.clear();
  targets.clear();
  top_ids.clear();
  top_logprobs.clear();
}

class CpuExecutor::Slot final : public Step {
 public:
  explicit Slot(CpuExecutor& executor) : executor_(executor) {}

  const StepResult& wait(std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(executor_.mutex_);
    const auto ended = [&] { return phase == Phase::kDone || executor_.dead_; };
    if (deadline == std::chrono::steady_clock::time_point::max()) {
      executor_.changed_.wait(lock, ended);
    } else if (!executor_.changed_.wait_until(lock, deadline, ended)) {
      fail(ErrorKind::kTimeout, "step {} is not done within its deadline", plan.step);
    }
    // A step that was done before the executor died keeps its result.
    return phase == Phase::kDone ? result : executor_.dead_result_;
  }

  void sample(const LateInputs& inputs) override {
    const std::lock_guard lock(executor_.mutex_);
    MINISGL_CHECK(plan.late_sampling && !masks_ready, "step {} does not wait for masks", plan.step);
    const auto words = static_cast<size_t>((executor_.settings_.limits.vocab_size + 31) / 32);
    MINISGL_CHECK(inputs.masks.empty() || inputs.masks.size() == plan.samples.size() * words, "{} mask words for {} samples",
                  inputs.masks.size(), plan.samples.size());
    masks.assign(inputs.masks.begin(), inputs.masks.end());
    masks_ready = true;
    executor_.changed_.notify_all();
  }

  void release() noexcept override {
    const std::lock_guard lock(executor_.mutex_);
    --executor_.held_;
    released = true;
    masks_ready = true;
    if (phase == Phase::kDone) phase = Phase::kFree;
    executor_.changed_.notify_all();
  }

  /// Ends with the executor's fatal result. Under its mutex.
  void end_fatally() {
    result.clear();
    result.status = executor_.dead_result_.status;
    result.message = executor_.dead_result_.message;
    phase = released ? Phase::kFree : Phase::kDone;
  }

  StepPlan plan;
  StepResult result;
  std::vector<uint32_t> masks;
  Phase phase = Phase::kFree;
  uint64_t order = 0;  ///< of the launch
  bool masks_ready = false;
  bool released = true;

 private:
  CpuExecutor& executor_;
};

CpuExecutor::CpuExecutor(const Settings& settings, ForwardModel& model, std::span<KvPool* const> kv_pools, Ops& ops, ComputePool& pool)
    : settings_(settings),
      model_(model),
      kv_pools_(kv_pools.begin(), kv_pools.end()),
      validator_(settings.limits),
      sampler_(ops, pool, settings.limits.vocab_size, settings.logit_block_rows),
      logprob_rows_(ops, settings.limits.vocab_size, settings.logit_block_rows, settings.max_top_logprobs),
      page_table_(settings.limits.rows, (settings.limits.max_model_len + settings.limits.page_size - 1) / settings.limits.page_size,
                  kv_pools_.front()->dummy_page(), ops.device()),
      token_pool_(settings.limits.rows, settings.limits.max_model_len, ops.device()),
      row_sampling_(static_cast<size_t>(settings.limits.rows)),
      input_ids_(DType::kInt32, {settings.limits.max_tokens}),
      positions_(DType::kInt32, {settings.limits.max_tokens}),
      slots_(DType::kInt32, {settings.limits.max_tokens}),
      query_start_(DType::kInt32, {settings.limits.rows + 1}),
      kv_length_(DType::kInt32, {settings.limits.rows}),
      row_index_(DType::kInt32, {settings.limits.rows}),
      logit_rows_(DType::kInt32, {settings.logit_block_rows}),
      logits_(DType::kFloat32, {settings.logit_block_rows, settings.limits.vocab_size}, ops.device()) {
  jobs_.reserve(static_cast<size_t>(settings.logit_block_rows));
  job_logprob_row_.reserve(static_cast<size_t>(settings.logit_block_rows));
  // One slot more than handles: a step that was released unfinished does not stand in the way of the next launch.
  for (int i = 0; i < settings.max_in_flight + 1; ++i) steps_.push_back(std::make_unique<Slot>(*this));
  worker_ = std::thread([this] { work(); });
}

CpuExecutor::~CpuExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

size_t CpuExecutor::workspace_bytes(const Settings& settings) {
  const PlanLimits& limits = settings.limits;
  const int64_t table_width = limits.max_model_len + (limits.max_model_len + limits.page_size - 1) / limits.page_size;
  const int64_t logits = 2 * settings.logit_block_rows * limits.vocab_size;  // and log-probabilities
  return static_cast<size_t>(4 * (logits + (limits.rows + 1) * table_width + 3 * limits.max_tokens + 3 * limits.rows));
}

StepHandle CpuExecutor::launch(const StepPlan& plan) {
  const std::string error = validator_.check(plan);
  const std::lock_guard lock(mutex_);
  const auto free = std::find_if(steps_.begin(), steps_.end(), [](const auto& s) { return s->phase == Phase::kFree; });
  MINISGL_CHECK(held_ < settings_.max_in_flight && free != steps_.end(), "more than {} steps in flight", settings_.max_in_flight);
  Slot& slot = **free;
  ++held_;
  slot.order = ++launches_;
  slot.released = false;
  slot.masks_ready = false;
  slot.masks.clear();
  slot.result.clear();
  slot.plan = plan;
  if (dead_) {
    slot.end_fatally();
  } else if (!error.empty()) {
    slot.result.status = StepResult::Status::kRejected;
    slot.result.message = fmt::format("step {} is not valid: {}", plan.step, error);
    slot.phase = Phase::kDone;
  } else {
    slot.phase = Phase::kQueued;
  }
  changed_.notify_all();
  return StepHandle(&slot);
}

void CpuExecutor::abort() noexcept {
  const std::lock_guard lock(mutex_);
  die("the engine was stopped");
}

void CpuExecutor::die(std::string message) {
  if (!dead_) {
    dead_ = true;
    dead_result_.status = StepResult::Status::kFatal;
    dead_result_.message = std::move(message);
    for (const auto& slot : steps_) {
      if (slot->phase == Phase::kQueued) slot->end_fatally();
    }
  }
  changed_.notify_all();
}

CpuExecutor::Slot* CpuExecutor::next_queued() const {
  Slot* next = nullptr;
  for (const auto& slot : steps_) {
    if (slot->phase == Phase::kQueued && (next == nullptr || slot->order < next->order)) next = slot.get();
  }
  return next;
}

void CpuExecutor::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    Slot* slot = nullptr;
    changed_.wait(lock, [&] { return stop_ || (slot = next_queued()) != nullptr; });
    if (stop_) return;
    slot->phase = Phase::kRunning;
    lock.unlock();
    std::string failure;
    try {
      run(*slot);
    } catch (const std::exception& error) {
      failure = fmt::format("step {} failed: {}", slot->plan.step, error.what());
    } catch (...) {
      failure = fmt::format("step {} failed with an exception of unknown type", slot->plan.step);
    }
    lock.lock();
    if (!failure.empty()) die(std::move(failure));
    if (dead_) {
      slot->end_fatally();
    } else {
      slot->phase = slot->released ? Phase::kFree : Phase::kDone;
    }
    changed_.notify_all();
  }
}

void CpuExecutor::run(Slot& slot) {
  const StepPlan& plan = slot.plan;
  StepResult& result = slot.result;
  apply_deltas(plan);
  forward(plan);

  result.token_ids.assign(plan.samples.size(), -1);
  result.row_status.assign(plan.samples.size(), RowStatus::kOk);
  result.logprobs.assign(plan.samples.size(), {});
  result.targets.assign(plan.targets.size(), {});
  next_sample_ = 0;
  next_target_ = 0;
  const auto logit_rows = static_cast<int64_t>(plan.logit_rows.size());
  for (int64_t begin = 0; begin < logit_rows; begin += settings_.logit_block_rows) {
    const int64_t end = std::min(begin + settings_.logit_block_rows, logit_rows);
    std::copy(plan.logit_rows.begin() + begin, plan.logit_rows.begin() + end, logit_rows_.view().data<int32_t>());
    model_.head(logit_rows_.view().rows(0, end - begin), logits_.view().rows(0, end - begin));
    if (plan.late_sampling && !await_masks(slot)) return;
    sample_block(plan, slot.masks, begin, end, result);
  }
}

bool CpuExecutor::await_masks(Slot& slot) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return slot.masks_ready || stop_ || dead_; });
  return slot.masks_ready && !stop_ && !dead_;
}

void CpuExecutor::apply_deltas(const StepPlan& plan) {
  for (const auto& delta : plan.page_deltas) page_table_.row(delta.row)[delta.page_index] = delta.page;
  for (const auto& write : plan.token_writes) {
    std::copy_n(plan.token_ids.begin() + write.begin, write.count, token_pool_.row(write.row) + write.position);
  }
  for (const auto& delta : plan.sampling_deltas) row_sampling_[static_cast<size_t>(delta.row)] = delta.sampling;
  for (const auto& op : plan.cache_ops) {
    KvPool& pool = *kv_pools_[static_cast<size_t>(op.group)];
    if (op.source_page < 0) {
      pool.zero_page(op.destination_page);
    } else {
      pool.copy_page(op.source_page, op.destination_page);
    }
  }
}

void CpuExecutor::forward(const StepPlan& plan) {
  const auto rows = static_cast<int64_t>(plan.rows.size());
  const int64_t tokens = plan.num_tokens();
  auto* input_ids = input_ids_.view().data<int32_t>();
  auto* positions = positions_.view().data<int32_t>();
  auto* query_start = query_start_.view().data<int32_t>();
  auto* kv_length = kv_length_.view().data<int32_t>();
  auto* row_index = row_index_.view().data<int32_t>();

  int32_t token = 0;
  query_start[0] = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const StepPlan::Row& row = plan.rows[static_cast<size_t>(i)];
    const int32_t* sequence = token_pool_.row(row.row);
    for (int32_t p = row.position; p < row.position + row.num_tokens; ++p, ++token) {
      input_ids[token] = sequence[p];
      positions[token] = p;
    }
    query_start[i + 1] = token;
    kv_length[i] = row.position + row.num_tokens;
    row_index[i] = row.row;
  }
  std::copy(plan.slots.begin(), plan.slots.end(), slots_.view().data<int32_t>());
  model_.forward({.input_ids = input_ids_.view().rows(0, tokens),
                  .positions = positions_.view().rows(0, tokens),
                  .slots = slots_.view().rows(0, tokens),
                  .attention = {.rows = rows,
                                .query_start = query_start,
                                .kv_length = kv_length,
                                .page_table = page_table_.data(),
                                .row_index = row_index,
                                .page_table_stride = page_table_.width()}});
}

/// Samples and targets of the logit rows [begin, end), whose logits are in logits_. Both lists ascend by logit row, so each block continues
/// where the last one stopped.
void CpuExecutor::sample_block(const StepPlan& plan, std::span<const uint32_t> masks, int64_t begin, int64_t end, StepResult& result) {
  logprob_rows_.clear();
  const auto words = static_cast<size_t>((settings_.limits.vocab_size + 31) / 32);
  const Tensor logits = logits_.view().rows(0, end - begin);

  const size_t first_sample = next_sample_;
  jobs_.clear();
  job_logprob_row_.clear();
  // A row may be sampled and be a target: its log-probabilities are then computed once, so both lists are walked together.
  while (true) {
    const int64_t sample_row = next_sample_ < plan.samples.size() ? plan.samples[next_sample_].logit_row : end;
    const int64_t target_row = next_target_ < plan.targets.size() ? plan.targets[next_target_].logit_row : end;
    const int64_t logit_row = std::min(sample_row, target_row);
    if (logit_row >= end) break;
    int64_t logprob_row = -1;
    const auto logprobs = [&] {
      if (logprob_row < 0) logprob_row = logprob_rows_.compute(logits.rows(logit_row - begin, 1));
      return logprob_row;
    };
    if (target_row == logit_row) {
      const StepPlan::Target& target = plan.targets[next_target_];
      result.targets[next_target_++] = logprob_rows_.read(logprobs(), target.token_id, target.top, result);
    }
    if (sample_row == logit_row) {
      const StepPlan::Sample& sample = plan.samples[next_sample_];
      const RowSampling& sampling = row_sampling_[static_cast<size_t>(sample.row)];
      jobs_.push_back({.logit_row = logit_row - begin,
                       .sampling = &sampling,
                       .tokens = token_pool_.row(sample.row),
                       .position = sample.position,
                       .mask = masks.empty() ? nullptr : masks.data() + next_sample_ * words});
      job_logprob_row_.push_back(sampling.logprobs < 0 ? -1 : logprobs());
      ++next_sample_;
    }
  }

  const size_t count = jobs_.size();
  sampler_.sample(logits, jobs_, std::span(result.token_ids).subspan(first_sample, count),
                  std::span(result.row_status).subspan(first_sample, count));
  for (size_t i = 0; i < count; ++i) {
    const StepPlan::Sample& sample = plan.samples[first_sample + i];
    const int32_t id = result.token_ids[first_sample + i];
    if (id >= 0) token_pool_.row(sample.row)[sample.position] = id;
    if (job_logprob_row_[i] >= 0) {
      result.logprobs[first_sample + i] = logprob_rows_.read(job_logprob_row_[i], id, jobs_[i].sampling->logprobs, result);
    }
  }
}

}  // namespace minisgl
