#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/plan_validation.h"
#include "engine/step_plan.h"

namespace minisgl::test {

/// What the fake executor computes instead of a model: the next token is a hash of the whole sequence so far, of seed and choice. Batching,
/// chunking, caching and preemption therefore cannot change it, and a test knows every token in advance.
struct FakeModel {
  static constexpr int32_t kEosToken = 0;

  int64_t vocab_size = 100;
  /// One token in this many is the end of a sequence; 0: none.
  int64_t eos_interval = 0;

  static uint64_t extend_hash(uint64_t prefix_hash, int32_t token);
  static uint64_t hash(std::span<const int32_t> tokens);
  /// The token after a sequence with this hash and length. With a mask ([vocab / 32] words) the first allowed token from there on, or -1.
  int32_t next_token(uint64_t prefix_hash, int64_t length, const RowSampling& sampling, std::span<const uint32_t> mask = {}) const;
  int32_t next_token(std::span<const int32_t> sequence, const RowSampling& sampling, std::span<const uint32_t> mask = {}) const;
  /// The log-probability that a target of this token has after a sequence with this hash.
  static float logprob(uint64_t prefix_hash, int32_t token);
};

/// An executor without a model. It keeps, for every KV slot, the hash of the sequence that was written there, and compares each read of
/// each row with the row's own sequence: a page that was handed out too early, a row that points at the wrong page, a token in the wrong
/// place are all seen at the first step that would have computed something wrong with them.
///
/// What is wrong is collected in violations(), in words. Steps run in order, some as soon as they are launched, some only when they are
/// waited for (delay_probability). A step is in flight until its handle is released; what an in-flight step refers to must not be written
/// by a later one of another row (contract 2).
class FakeExecutor final : public Executor {
 public:
  struct Settings {
    PlanLimits limits;
    FakeModel model;
    int max_in_flight = 2;
    uint64_t seed = 0;
    double delay_probability = 0.5;      ///< that a step waits for wait()
    double row_failure_probability = 0;  ///< that a sampled row gives NaN
    double reject_probability = 0;       ///< that a plan is rejected
  };

  explicit FakeExecutor(const Settings& settings);
  ~FakeExecutor() override;

  StepHandle launch(const StepPlan& plan) override;
  int max_in_flight() const override { return settings_.max_in_flight; }
  void abort() noexcept override { fatal_ = true; }

  const std::vector<std::string>& violations() const { return violations_; }
  /// Faults on order: of the step with this number, or of the next sample of any row.
  std::set<uint64_t> rejected_steps;
  std::set<uint64_t> nan_steps;  ///< steps of which every sampled row fails
  uint64_t fatal_step = 0;

  /// Every plan that was launched, in order, if `keep_plans` is set.
  bool keep_plans = false;
  std::vector<StepPlan> plans;
  /// Prompt and decode tokens computed so far.
  int64_t computed_tokens() const { return computed_tokens_; }
  int in_flight() const { return in_flight_; }

 private:
  class FakeStep;
  struct Row {
    std::vector<int32_t> tokens;
    std::vector<int32_t> pages;
    RowSampling sampling;
    /// A step of this row failed: what it holds means nothing until the row is set up anew.
    bool tainted = false;
  };

  template <typename... Args>
  void violation(fmt::format_string<Args...> format, Args&&... args);
  void check_hazards(const StepPlan& plan);
  void record_readers(FakeStep& step);
  void run_until(const FakeStep* last);
  bool run(FakeStep& step);
  void forward(FakeStep& step);
  void sample(FakeStep& step);
  bool chance(double probability) { return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability; }

  Settings settings_;
  PlanValidator validator_;
  std::mt19937_64 random_;
  std::vector<Row> rows_;            // device state, as of the last step that ran
  std::vector<uint64_t> slot_hash_;  // [slot]: of the sequence up to the token that was written there

  // The page table as of the last launched step, to know what in-flight steps read.
  std::vector<std::vector<int32_t>> launched_pages_;
  std::vector<bool> launched_tainted_;

  std::vector<std::unique_ptr<FakeStep>> steps_;
  std::deque<FakeStep*> queue_;  // launched, not run
  std::vector<FakeStep*> held_;  // in flight: launched, not released
  int in_flight_ = 0;
  bool fatal_ = false;
  StepResult fatal_result_;
  int64_t computed_tokens_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace minisgl::test
