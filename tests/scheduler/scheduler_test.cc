#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "engine/counting_model.h"

namespace minisgl {
namespace {

/// Passes plans on, and breaks one of them.
class FaultyExecutor final : public Executor {
 public:
  explicit FaultyExecutor(Executor& inner) : inner_(inner) {}
  StepHandle launch(const StepPlan& plan) override {
    plans.push_back(plan);
    if (plan.step != break_step) return inner_.launch(plan);
    StepPlan broken = plan;
    broken.slots[0] = -1;
    return inner_.launch(broken);
  }
  int max_in_flight() const override { return inner_.max_in_flight(); }
  void abort() noexcept override { inner_.abort(); }

  uint64_t break_step = 0;
  std::vector<StepPlan> plans;

 private:
  Executor& inner_;
};

/// A scheduler over the counting model: a prompt that ends with t is continued by t + 1, t + 2, ... (mod 100).
class SchedulerTest : public ::testing::Test {
 protected:
  void start(const SchedulerConfig& config) {
    executor_ = std::make_unique<FaultyExecutor>(engine_.executor);
    scheduler_ = std::make_unique<Scheduler>(*executor_, config, [this](const RequestOutput& output) {
      Seen& seen = seen_[output.request.id];
      EXPECT_FALSE(seen.finished) << "nothing comes after the last output";
      seen.token_ids.insert(seen.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
      seen.finished = output.finished;
    });
  }

  std::shared_ptr<Request> add(std::vector<int32_t> prompt, int64_t max_tokens) {
    auto request = std::make_shared<Request>();
    request->id = next_id_++;
    request->sampling.prompt_tokens = static_cast<int32_t>(prompt.size());
    request->prompt_token_ids = std::move(prompt);
    request->max_tokens = max_tokens;
    scheduler_->add(request);
    return request;
  }

  void run() {
    for (int i = 0; scheduler_->has_work(); ++i) {
      ASSERT_LT(i, 10000) << "no progress";
      step();
    }
    EXPECT_EQ(scheduler_->pages().free() + scheduler_->prefix_cache().cached_pages(), scheduler_->pages().count());
    scheduler_->check_integrity();
    EXPECT_EQ(scheduler_->rows().free(), scheduler_->rows().count());
  }

  void step() {
    scheduler_->step();
    scheduler_->pages().check_integrity();
    scheduler_->rows().check_integrity();
  }

  static std::vector<int32_t> count_from(int32_t first, int64_t count) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((first + i) % 100));
    return ids;
  }

  static constexpr SchedulerConfig kConfig = {.max_running_requests = 8, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 64};

  struct Seen {
    std::vector<int32_t> token_ids;
    bool finished = false;
  };
  test::CountingEngine engine_;
  std::unique_ptr<FaultyExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<uint64_t, Seen> seen_;
  uint64_t next_id_ = 1;
};

TEST_F(SchedulerTest, ContinuesEveryPromptToItsLength) {
  start(kConfig);
  const auto a = add({5}, 3);
  const auto b = add(count_from(20, 30), 17);
  run();
  EXPECT_EQ(a->result.token_ids, count_from(6, 3));
  EXPECT_EQ(b->result.token_ids, count_from(50, 17));
  EXPECT_EQ(a->result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(seen_[a->id].token_ids, a->result.token_ids);
  EXPECT_TRUE(seen_[b->id].finished);
}

TEST_F(SchedulerTest, DecodesAllRunningRequestsTogether) {
  start(kConfig);
  add({5}, 4);
  add({15}, 4);
  add({25}, 4);
  run();
  ASSERT_EQ(executor_->plans.size(), 4u);
  EXPECT_EQ(executor_->plans[0].num_prefill_rows, 3);
  EXPECT_EQ(executor_->plans[1].num_prefill_rows, 0);
  EXPECT_EQ(executor_->plans[1].rows.size(), 3u);
  EXPECT_TRUE(executor_->plans[1].page_deltas.empty()) << "nothing is sent twice";
}

TEST_F(SchedulerTest, CutsLongPromptsToTheBudget) {
  for (const int64_t budget : {1, 5, 7, 64}) {
    start({.max_running_requests = 8, .num_pages = 64, .page_size = 4, .max_prefill_tokens = budget});
    const auto a = add(count_from(3, 33), 5);
    const auto b = add(count_from(60, 12), 5);
    run();
    EXPECT_EQ(a->result.token_ids, count_from(36, 5));
    EXPECT_EQ(b->result.token_ids, count_from(72, 5));
    for (const StepPlan& plan : executor_->plans) EXPECT_LE(plan.num_tokens(), std::max<int64_t>(budget, 2));
  }
}

TEST_F(SchedulerTest, PromptLogprobsCrossChunkBorders) {
  std::vector<std::vector<double>> runs;
  for (const int64_t budget : {5, 64}) {
    start({.max_running_requests = 8, .num_pages = 64, .page_size = 4, .max_prefill_tokens = budget});
    auto request = std::make_shared<Request>();
    request->id = next_id_++;
    request->prompt_token_ids = {10, 11, 12, 50, 51, 52, 53, 20, 21, 22, 23, 24};
    request->sampling.prompt_tokens = 12;
    request->max_tokens = 2;
    request->prompt_logprobs = 1;
    scheduler_->add(request);
    run();
    const auto& logprobs = request->result.prompt_logprobs;
    ASSERT_EQ(logprobs.size(), 12u);
    EXPECT_FALSE(logprobs[0]);
    std::vector<double> values;
    for (size_t i = 1; i < 12; ++i) {
      EXPECT_EQ(logprobs[i]->token_id, request->prompt_token_ids[i]);
      EXPECT_EQ(logprobs[i]->top.size(), 1u);
      values.push_back(logprobs[i]->logprob);
    }
    EXPECT_GT(values[0], -0.1);
    EXPECT_LT(values[2], -9) << "12 to 50 was not to be expected";
    runs.push_back(values);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_F(SchedulerTest, WaitsForPagesAndRowsInOrderOfArrival) {
  start({.max_running_requests = 2, .num_pages = 10, .page_size = 4, .max_prefill_tokens = 64});
  std::vector<std::shared_ptr<Request>> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(add(count_from(i * 10, 4 + i), 12));
  int64_t most_running = 0;
  std::vector<uint64_t> order;
  while (scheduler_->has_work()) {
    step();
    most_running = std::max(most_running, scheduler_->running());
  }
  EXPECT_EQ(most_running, 2);
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(requests[static_cast<size_t>(i)]->result.token_ids, count_from(i * 10 + 4 + i, 12));
  }
  run();
}

TEST_F(SchedulerTest, ARequestOfTheWholePoolRuns) {
  start({.max_running_requests = 8, .num_pages = 8, .page_size = 4, .max_prefill_tokens = 64});
  const auto a = add({1}, 4);
  const auto b = add(count_from(0, 20), 12);
  const auto c = add({2}, 4);
  run();
  EXPECT_EQ(b->result.token_ids, count_from(20, 12));
  EXPECT_EQ(a->result.token_ids, count_from(2, 4));
  EXPECT_EQ(c->result.token_ids, count_from(3, 4));
}

TEST_F(SchedulerTest, EndsAtEndOfSequenceAndStopTokens) {
  start(kConfig);
  auto request = std::make_shared<Request>();
  request->id = 1;
  request->prompt_token_ids = {10};
  request->max_tokens = 20;
  request->eos_token_ids = {14};
  scheduler_->add(request);
  auto other = std::make_shared<Request>();
  other->id = 2;
  other->prompt_token_ids = {10};
  other->max_tokens = 20;
  other->stop_token_ids = {13};
  other->eos_token_ids = {14};
  scheduler_->add(other);
  run();
  EXPECT_EQ(request->result.token_ids, count_from(11, 4));
  EXPECT_EQ(request->result.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(request->result.matched_stop));
  EXPECT_EQ(other->result.token_ids, count_from(11, 3));
  EXPECT_EQ(std::get<int32_t>(other->result.matched_stop), 13);
}

TEST_F(SchedulerTest, AbortsInEveryState) {
  start({.max_running_requests = 2, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 8, .overlap = false});
  const auto decoding = add({1}, 50);
  const auto chunked = add(count_from(10, 30), 10);
  const auto waiting = add({3}, 10);
  const auto spared = add({4}, 3);
  step();  // decoding has its first token, chunked its first chunk
  EXPECT_EQ(scheduler_->running(), 2);
  EXPECT_EQ(scheduler_->waiting(), 2);
  waiting->abort = true;
  chunked->abort = true;
  decoding->abort = true;
  run();
  EXPECT_EQ(waiting->result.finish_reason, FinishReason::kAbort);
  EXPECT_TRUE(waiting->result.token_ids.empty());
  EXPECT_EQ(chunked->result.finish_reason, FinishReason::kAbort);
  EXPECT_EQ(decoding->result.finish_reason, FinishReason::kAbort);
  EXPECT_EQ(decoding->result.token_ids, count_from(2, 1));
  EXPECT_EQ(spared->result.token_ids, count_from(5, 3));
}

TEST_F(SchedulerTest, AbortAllAnswersEverybody) {
  start({.max_running_requests = 1, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 8});
  std::vector<std::shared_ptr<Request>> requests;
  for (int32_t i = 0; i < 5; ++i) requests.push_back(add({i}, 30));
  step();
  scheduler_->abort_all();
  EXPECT_FALSE(scheduler_->has_work());
  for (const auto& request : requests) EXPECT_EQ(request->result.finish_reason, FinishReason::kAbort);
  run();
}

TEST_F(SchedulerTest, ARejectedPlanFailsItsRequestsOnly) {
  start({.max_running_requests = 8, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 4});
  const auto a = add(count_from(0, 4), 5);
  const auto b = add(count_from(30, 4), 5);
  executor_->break_step = 2;  // the prefill of b
  run();
  EXPECT_EQ(a->result.token_ids, count_from(4, 5));
  EXPECT_EQ(b->result.finish_reason, FinishReason::kError);
  ASSERT_TRUE(b->result.error);
  EXPECT_NE(b->result.error->message.find("slot"), std::string::npos) << b->result.error->message;
}

TEST_F(SchedulerTest, NanLogitsFailTheirRequestOnly) {
  start(kConfig);
  engine_.model.nan_after = 42;
  const auto a = add({40}, 10);
  const auto b = add({60}, 10);
  run();
  EXPECT_EQ(a->result.finish_reason, FinishReason::kError);
  EXPECT_EQ(a->result.token_ids, count_from(41, 2));
  EXPECT_EQ(b->result.token_ids, count_from(61, 10));
}

TEST_F(SchedulerTest, AFatalStepFailsAllAndEverythingAfter) {
  start({.max_running_requests = 1, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 64});
  const auto a = add({1}, 10);
  const auto b = add({2}, 10);
  step();
  engine_.model.fail = true;
  run();
  EXPECT_EQ(a->result.finish_reason, FinishReason::kError);
  EXPECT_EQ(b->result.finish_reason, FinishReason::kError);
  EXPECT_FALSE(scheduler_->fatal_error().empty());
  const auto c = add({3}, 10);
  run();
  EXPECT_EQ(c->result.finish_reason, FinishReason::kError);
}

TEST_F(SchedulerTest, MasksFollowTheTokenBefore) {
  for (const bool overlap : {false, true}) {
    start({.max_running_requests = 8, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 64, .vocab_size = 100, .overlap = overlap});
    auto masked = std::make_shared<Request>();
    masked->id = next_id_++;
    masked->prompt_token_ids = {10};
    masked->max_tokens = 6;
    masked->token_mask = [](std::span<const int32_t> output, std::span<uint32_t> mask) {
      const int32_t allowed = output.empty() ? 12 : output.back() + 2;
      mask[static_cast<size_t>(allowed / 32)] |= 1u << (allowed % 32);
    };
    auto forbidden = std::make_shared<Request>();
    forbidden->id = next_id_++;
    forbidden->prompt_token_ids = {50};
    forbidden->max_tokens = 6;
    forbidden->token_mask = [](std::span<const int32_t>, std::span<uint32_t>) {};
    scheduler_->add(masked);
    scheduler_->add(forbidden);
    const auto free = add({30}, 6);
    run();
    EXPECT_EQ(masked->result.token_ids, (std::vector<int32_t>{12, 14, 16, 18, 20, 22}));
    EXPECT_EQ(free->result.token_ids, count_from(31, 6));
    ASSERT_TRUE(forbidden->result.error);
    EXPECT_EQ(forbidden->result.error->message, "no token is allowed at output token 1");
  }
}

TEST_F(SchedulerTest, TenThousandRequestsAtOnceAndEqualIds) {
  start(kConfig);
  std::vector<std::shared_ptr<Request>> requests;
  int64_t answered = 0;
  scheduler_ = std::make_unique<Scheduler>(*executor_, kConfig, [&](const RequestOutput& output) { answered += output.finished; });
  for (int32_t i = 0; i < 10000; ++i) {
    requests.push_back(add(count_from(i % 90, 1 + i % 7), 1 + i % 3));
    requests.back()->id = 1;  // the scheduler tells requests apart by themselves
    if (i % 1000 == 999) requests.back()->abort = true;
  }
  run();
  EXPECT_EQ(answered, 10000);
  for (const auto& request : requests) {
    if (request->abort) continue;
    EXPECT_EQ(request->result.token_ids, count_from(request->prompt_token_ids.back() + 1, request->max_tokens));
  }
}

TEST_F(SchedulerTest, RandomArrivalsAndAbortsLoseNothing) {
  std::mt19937 random(9);
  start({.max_running_requests = 4, .num_pages = 24, .page_size = 4, .max_prefill_tokens = 9});
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 3 == 0) {
      requests.push_back(add(count_from(static_cast<int32_t>(random() % 100), 1 + static_cast<int64_t>(random() % 40)),
                             1 + static_cast<int64_t>(random() % 20)));
    }
    if (random() % 10 == 0 && !requests.empty()) requests[random() % requests.size()]->abort = true;
    step();
  }
  run();
  size_t whole = 0;
  for (const auto& request : requests) {
    EXPECT_TRUE(seen_[request->id].finished);
    const auto& ids = request->result.token_ids;
    EXPECT_EQ(ids, count_from((request->prompt_token_ids.back() + 1) % 100, static_cast<int64_t>(ids.size())));
    if (request->result.finish_reason == FinishReason::kLength) {
      ++whole;
      EXPECT_EQ(static_cast<int64_t>(ids.size()), request->max_tokens);
    } else {
      EXPECT_TRUE(request->abort);
    }
  }
  EXPECT_GT(whole, requests.size() / 3);
}

}  // namespace
}  // namespace minisgl
