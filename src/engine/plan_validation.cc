#include "engine/plan_validation.h"

#include <fmt/format.h>

#include <cmath>

namespace minisgl {

namespace {

bool in_range(int64_t value, int64_t end) {
  return value >= 0 && value < end;
}

std::string check_sampling(const RowSampling& s, int64_t vocab_size) {
  const auto good = [](float value, float low, float high) { return std::isfinite(value) && value >= low && value <= high; };
  if (!good(s.temperature, 0, HUGE_VALF)) return fmt::format("temperature {}", s.temperature);
  if (s.top_k < 0) return fmt::format("top_k {}", s.top_k);
  if (!good(s.top_p, 0, 1) || s.top_p == 0) return fmt::format("top_p {}", s.top_p);
  if (!good(s.min_p, 0, 1)) return fmt::format("min_p {}", s.min_p);
  if (!std::isfinite(s.presence_penalty) || !std::isfinite(s.frequency_penalty)) return "a penalty is not finite";
  if (!good(s.repetition_penalty, 0, HUGE_VALF) || s.repetition_penalty == 0) {
    return fmt::format("repetition_penalty {}", s.repetition_penalty);
  }
  if (s.prompt_tokens < 0 || s.min_tokens < 0) return "a negative number of tokens";
  for (const int32_t id : s.banned_before_min) {
    if (!in_range(id, vocab_size)) return fmt::format("banned token {}", id);
  }
  for (const auto& [id, bias] : s.logit_bias) {
    if (!in_range(id, vocab_size) || !std::isfinite(bias)) return fmt::format("bias {} of token {}", bias, id);
  }
  return {};
}

}  // namespace

PlanValidator::PlanValidator(const PlanLimits& limits) : limits_(limits), row_seen_(static_cast<size_t>(limits.rows), 0) {}

std::string PlanValidator::check(const StepPlan& plan) {
  const int64_t max_pages = (limits_.max_model_len + limits_.page_size - 1) / limits_.page_size;
  for (const auto& delta : plan.page_deltas) {
    if (!in_range(delta.row, limits_.rows) || !in_range(delta.page_index, max_pages) || !in_range(delta.page, limits_.num_pages)) {
      return fmt::format("page delta: row {}, page index {}, page {}", delta.row, delta.page_index, delta.page);
    }
  }
  for (const auto& write : plan.token_writes) {
    if (!in_range(write.row, limits_.rows) || write.count < 0 || write.position < 0 || write.begin < 0 ||
        int64_t{write.position} + write.count > limits_.max_model_len ||
        int64_t{write.begin} + write.count > static_cast<int64_t>(plan.token_ids.size())) {
      return fmt::format("token write: row {}, position {}, tokens {} from {}", write.row, write.position, write.count, write.begin);
    }
  }
  for (const int32_t id : plan.token_ids) {
    if (!in_range(id, limits_.vocab_size)) return fmt::format("token id {} of {}", id, limits_.vocab_size);
  }
  for (const auto& delta : plan.sampling_deltas) {
    if (!in_range(delta.row, limits_.rows)) return fmt::format("sampling of row {}", delta.row);
    if (std::string error = check_sampling(delta.sampling, limits_.vocab_size); !error.empty()) {
      return fmt::format("sampling of row {}: {}", delta.row, error);
    }
  }
  for (const auto& op : plan.cache_ops) {
    if (!in_range(op.group, limits_.cache_groups) || !in_range(op.destination_page, limits_.num_pages) ||
        (op.source_page != -1 && !in_range(op.source_page, limits_.num_pages))) {
      return fmt::format("cache operation: group {}, page {} to {}", op.group, op.source_page, op.destination_page);
    }
  }

  if (plan.rows.empty()) return "no rows";
  const auto rows = static_cast<int64_t>(plan.rows.size());
  if (plan.num_prefill_rows < 0 || plan.num_prefill_rows > rows) return fmt::format("{} prefill rows of {}", plan.num_prefill_rows, rows);
  ++check_number_;
  int64_t tokens = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const StepPlan::Row& row = plan.rows[static_cast<size_t>(i)];
    if (!in_range(row.row, limits_.rows)) return fmt::format("row {} of {}", row.row, limits_.rows);
    uint64_t& seen = row_seen_[static_cast<size_t>(row.row)];
    if (seen == check_number_) return fmt::format("row {} twice", row.row);
    seen = check_number_;
    if (row.position < 0 || row.num_tokens < 1 || int64_t{row.position} + row.num_tokens > limits_.max_model_len ||
        (i >= plan.num_prefill_rows && row.num_tokens != 1)) {
      return fmt::format("row {}: {} tokens at position {}", row.row, row.num_tokens, row.position);
    }
    tokens += row.num_tokens;
  }
  if (tokens != plan.num_tokens()) return fmt::format("{} slots for {} tokens", plan.num_tokens(), tokens);
  if (tokens > limits_.max_tokens) return fmt::format("{} tokens, at most {} in one step", tokens, limits_.max_tokens);
  for (const int32_t slot : plan.slots) {
    if (!in_range(slot, limits_.num_pages * limits_.page_size)) return fmt::format("slot {}", slot);
  }

  int64_t previous = -1;
  for (const int32_t token : plan.logit_rows) {
    if (token <= previous || token >= tokens) return fmt::format("logit row of token {} after {}, of {}", token, previous, tokens);
    previous = token;
  }
  const auto logit_rows = static_cast<int64_t>(plan.logit_rows.size());
  // Samples ascend by logit row, rows of the batch by token: one walk finds the batch row that each sample's token belongs to.
  previous = -1;
  size_t batch_row = 0;
  int64_t row_begin = 0;
  for (const auto& sample : plan.samples) {
    if (sample.logit_row <= previous || sample.logit_row >= logit_rows) return fmt::format("sample of logit row {}", sample.logit_row);
    previous = sample.logit_row;
    const int64_t token = plan.logit_rows[static_cast<size_t>(sample.logit_row)];
    while (token >= row_begin + plan.rows[batch_row].num_tokens) row_begin += plan.rows[batch_row++].num_tokens;
    const StepPlan::Row& row = plan.rows[batch_row];
    if (sample.row != row.row || sample.position != row.position + (token - row_begin) + 1 || sample.position >= limits_.max_model_len) {
      return fmt::format("sample of row {} at position {} from token {}", sample.row, sample.position, token);
    }
  }
  previous = -1;
  for (const auto& target : plan.targets) {
    if (target.logit_row <= previous || target.logit_row >= logit_rows || !in_range(target.token_id, limits_.vocab_size) ||
        target.top < 0) {
      return fmt::format("target: token {}, logit row {}, top {}", target.token_id, target.logit_row, target.top);
    }
    previous = target.logit_row;
  }
  if (plan.graph_size != 0) return fmt::format("graph of {} rows: there are none on this device", plan.graph_size);
  return {};
}

}  // namespace minisgl
