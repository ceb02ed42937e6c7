#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "engine/counting_model.h"

namespace minisgl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::CountingEngine;

constexpr auto kForever = steady_clock::time_point::max();

/// A step that admits one prompt into `row`, whose pages start at page `first_page`, and samples after it.
StepPlan prompt_plan(uint64_t step, int32_t row, int32_t first_page, const std::vector<int32_t>& prompt, RowSampling sampling = {}) {
  StepPlan plan;
  plan.step = step;
  const auto tokens = static_cast<int32_t>(prompt.size());
  for (int32_t i = 0; i < 6; ++i) plan.page_deltas.push_back({row, i, first_page + i});
  plan.token_writes.push_back({row, 0, 0, tokens});
  plan.token_ids = prompt;
  sampling.prompt_tokens = tokens;
  plan.sampling_deltas.push_back({row, std::move(sampling)});
  plan.rows.push_back({row, 0, tokens});
  plan.num_prefill_rows = 1;
  for (int32_t p = 0; p < tokens; ++p) plan.slots.push_back(first_page * 4 + p);
  plan.logit_rows.push_back(tokens - 1);
  plan.samples.push_back({0, row, tokens});
  return plan;
}

StepPlan decode_plan(uint64_t step, int32_t row, int32_t first_page, int32_t position) {
  StepPlan plan;
  plan.step = step;
  plan.rows.push_back({row, position, 1});
  plan.slots.push_back(first_page * 4 + position);
  plan.logit_rows.push_back(0);
  plan.samples.push_back({0, row, position + 1});
  return plan;
}

TEST(CpuExecutor, FeedsItsOwnSamplesBackFromTheTokenPool) {
  CountingEngine engine;
  StepHandle handle = engine.executor.launch(prompt_plan(1, 3, 10, {5, 6, 7}));
  EXPECT_EQ(handle->wait(kForever).token_ids, std::vector<int32_t>{8});
  handle.reset();
  for (int32_t i = 0; i < 10; ++i) {
    handle = engine.executor.launch(decode_plan(static_cast<uint64_t>(i) + 2, 3, 10, 3 + i));
    EXPECT_EQ(handle->wait(kForever).token_ids, std::vector<int32_t>{9 + i});
    handle.reset();
  }
}

TEST(CpuExecutor, RunsLaunchedStepsInOrderWithoutWaiting) {
  CountingEngine engine;
  engine.model.hold = true;
  StepHandle first = engine.executor.launch(prompt_plan(1, 0, 0, {1}));
  StepHandle second = engine.executor.launch(decode_plan(2, 0, 0, 1));  // its input is not known yet
  EXPECT_THROW(engine.executor.launch(decode_plan(3, 0, 0, 2)), Error) << "two handles are the most";
  engine.model.hold = false;
  EXPECT_EQ(second->wait(kForever).token_ids, std::vector<int32_t>{3});
  EXPECT_EQ(first->wait(kForever).token_ids, std::vector<int32_t>{2});
}

TEST(CpuExecutor, ADeadlineThrowsAndTheStepGoesOn) {
  CountingEngine engine;
  engine.model.hold = true;
  StepHandle handle = engine.executor.launch(prompt_plan(1, 0, 0, {1}));
  try {
    handle->wait(steady_clock::now() + milliseconds(20));
    FAIL() << "no timeout";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  }
  engine.model.hold = false;
  EXPECT_EQ(handle->wait(kForever).token_ids, std::vector<int32_t>{2});
}

TEST(CpuExecutor, LateSamplingWaitsForMasks) {
  CountingEngine engine;
  StepPlan plan = prompt_plan(1, 0, 0, {1});
  plan.late_sampling = true;
  StepHandle handle = engine.executor.launch(plan);
  EXPECT_THROW(handle->wait(steady_clock::now() + milliseconds(30)), Error);
  EXPECT_EQ(engine.model.forwards, 1) << "the model runs before the masks come";
  std::vector<uint32_t> mask(4, 0);
  mask[2] = 1u << 5;  // token 69 alone
  handle->sample({.masks = mask});
  EXPECT_EQ(handle->wait(kForever).token_ids, std::vector<int32_t>{69});
  EXPECT_THROW(handle->sample({.masks = mask}), Error) << "exactly once";
}

TEST(CpuExecutor, AForgottenLateStepDoesNotBlockTheNext) {
  CountingEngine engine;
  StepPlan plan = prompt_plan(1, 0, 0, {1});
  plan.late_sampling = true;
  engine.executor.launch(plan).reset();
  StepHandle next = engine.executor.launch(decode_plan(2, 0, 0, 1));
  EXPECT_EQ(next->wait(kForever).token_ids, std::vector<int32_t>{3});
}

TEST(CpuExecutor, AbortEndsEveryWait) {
  CountingEngine engine;
  engine.model.hold = true;
  StepHandle running = engine.executor.launch(prompt_plan(1, 0, 0, {1}));
  StepHandle queued = engine.executor.launch(decode_plan(2, 0, 0, 1));
  std::thread aborter([&] { engine.executor.abort(); });
  EXPECT_EQ(running->wait(kForever).status, StepResult::Status::kFatal);
  EXPECT_EQ(queued->wait(kForever).status, StepResult::Status::kFatal);
  aborter.join();
  engine.model.hold = false;
}

TEST(CpuExecutor, AnExceptionInAStepIsFatalForThatAndAllLater) {
  CountingEngine engine;
  engine.model.fail = true;
  StepHandle handle = engine.executor.launch(prompt_plan(1, 0, 0, {1}));
  const StepResult& result = handle->wait(kForever);
  EXPECT_EQ(result.status, StepResult::Status::kFatal);
  EXPECT_NE(result.message.find("step 1"), std::string::npos) << result.message;
  handle.reset();
  engine.model.fail = false;
  handle = engine.executor.launch(prompt_plan(2, 0, 0, {1}));
  EXPECT_EQ(handle->wait(kForever).status, StepResult::Status::kFatal);
}

TEST(CpuExecutor, AnExceptionOfAnyTypeIsFatal) {
  CountingEngine engine;
  engine.model.throw_number = true;
  StepHandle handle = engine.executor.launch(prompt_plan(1, 0, 0, {1}));
  EXPECT_EQ(handle->wait(kForever).status, StepResult::Status::kFatal);
}

TEST(CpuExecutor, LaunchAfterAnAbortIsFatalHoweverOften) {
  CountingEngine engine;
  engine.model.hold = true;
  StepHandle running = engine.executor.launch(prompt_plan(1, 0, 0, {1}));
  StepHandle queued = engine.executor.launch(decode_plan(2, 0, 0, 1));
  queued.reset();
  engine.executor.abort();
  for (uint64_t i = 0; i < 10; ++i) {
    StepHandle handle = engine.executor.launch(decode_plan(3 + i, 0, 0, 1));
    EXPECT_EQ(handle->wait(kForever).status, StepResult::Status::kFatal);
  }
  engine.model.hold = false;
}

TEST(CpuExecutor, RejectedStepsLeaveTheOrderOfTheOthers) {
  CountingEngine engine;
  engine.model.hold = true;
  engine.executor.launch(prompt_plan(1, 0, 0, {1})).reset();
  for (int i = 0; i < 5; ++i) {
    StepHandle rejected = engine.executor.launch(decode_plan(2, 99, 0, 1));
    EXPECT_EQ(rejected->wait(kForever).status, StepResult::Status::kRejected);
  }
  StepHandle second = engine.executor.launch(decode_plan(3, 0, 0, 1));
  StepHandle third = engine.executor.launch(decode_plan(4, 0, 0, 2));
  engine.model.hold = false;
  EXPECT_EQ(third->wait(kForever).token_ids, std::vector<int32_t>{4});
  EXPECT_EQ(second->wait(kForever).token_ids, std::vector<int32_t>{3});
}

TEST(CpuExecutor, NanLogitsFailTheirRowOnly) {
  CountingEngine engine;
  engine.model.nan_after = 7;
  StepPlan plan = prompt_plan(1, 0, 0, {5, 6, 7});
  const StepPlan other = prompt_plan(1, 1, 8, {20});
  plan.page_deltas.insert(plan.page_deltas.end(), other.page_deltas.begin(), other.page_deltas.end());
  plan.token_writes.push_back({1, 0, 3, 1});
  plan.token_ids.push_back(20);
  plan.sampling_deltas.push_back(other.sampling_deltas[0]);
  plan.rows.push_back({1, 0, 1});
  plan.num_prefill_rows = 2;
  plan.slots.push_back(32);
  plan.logit_rows.push_back(3);
  plan.samples.push_back({1, 1, 1});
  StepHandle handle = engine.executor.launch(plan);
  const StepResult& result = handle->wait(kForever);
  EXPECT_EQ(result.status, StepResult::Status::kOk);
  EXPECT_EQ(result.row_status, (std::vector<RowStatus>{RowStatus::kNanLogits, RowStatus::kOk}));
  EXPECT_EQ(result.token_ids, (std::vector<int32_t>{-1, 21}));
}

TEST(CpuExecutor, TargetsRunThroughBlocksOfTheHead) {
  CountingEngine engine;  // 5 logit rows at a time
  std::vector<int32_t> prompt(13);
  for (int32_t i = 0; i < 13; ++i) prompt[static_cast<size_t>(i)] = 40 + i - (i == 6 ? 3 : 0);
  StepPlan plan = prompt_plan(1, 0, 0, prompt, {.logprobs = 2});
  plan.logit_rows.clear();
  for (int32_t i = 0; i < 13; ++i) plan.logit_rows.push_back(i);
  for (int32_t i = 0; i < 12; ++i) plan.targets.push_back({i, prompt[static_cast<size_t>(i) + 1], 1});
  plan.samples[0].logit_row = 12;
  StepHandle handle = engine.executor.launch(plan);
  const StepResult& result = handle->wait(kForever);
  ASSERT_EQ(result.targets.size(), 12u);
  const double denominator = std::log(std::exp(10.0) + 99);
  for (size_t i = 0; i < 12; ++i) {
    const bool expected_token = prompt[i + 1] == prompt[i] + 1;
    EXPECT_NEAR(result.targets[i].token_logprob, (expected_token ? 10 : 0) - denominator, 1e-4) << i;
    ASSERT_EQ(result.targets[i].top_count, 1);
    EXPECT_EQ(result.top_ids[static_cast<size_t>(result.targets[i].top_begin)], prompt[i] + 1);
  }
  EXPECT_EQ(result.token_ids[0], 53);
  EXPECT_NEAR(result.logprobs[0].token_logprob, 10 - denominator, 1e-4);
  ASSERT_EQ(result.logprobs[0].top_count, 2);
  EXPECT_EQ(result.top_ids[static_cast<size_t>(result.logprobs[0].top_begin)], 53);
  EXPECT_EQ(result.top_ids[static_cast<size_t>(result.logprobs[0].top_begin) + 1], 0) << "the lowest id of the equal rest";
}

TEST(CpuExecutor, LogprobsAreOfTheRawLogits) {
  CountingEngine engine;
  StepHandle handle = engine.executor.launch(prompt_plan(1, 0, 0, {5}, {.temperature = 0.1f, .logit_bias = {{50, 100.0f}}, .logprobs = 0}));
  const StepResult& result = handle->wait(kForever);
  EXPECT_EQ(result.token_ids[0], 50);
  EXPECT_NEAR(result.logprobs[0].token_logprob, -std::log(std::exp(10.0) + 99), 1e-4);
}

TEST(CpuExecutor, CacheOperationsRunBeforeTheForward) {
  CountingEngine engine;
  auto* data = static_cast<float*>(engine.kv.layers()[0].data);
  const size_t page_floats = engine.kv.group().layer_page_bytes() / sizeof(float);
  std::fill_n(data + 20 * page_floats, page_floats, 3.0f);
  std::fill_n(data + 22 * page_floats, page_floats, 4.0f);
  StepPlan plan = prompt_plan(1, 0, 0, {5});
  plan.cache_ops = {{0, 20, 21}, {0, -1, 22}};
  engine.executor.launch(plan)->wait(kForever);
  EXPECT_EQ(data[21 * page_floats], 3.0f);
  EXPECT_EQ(data[22 * page_floats], 0.0f);
}

TEST(CpuExecutor, AnInvalidPlanIsRejectedBeforeAnythingChanges) {
  const std::vector<std::pair<const char*, std::function<void(StepPlan&)>>> faults = {
      {"row of a delta", [](StepPlan& p) { p.page_deltas[0].row = 8; }},
      {"page of a delta", [](StepPlan& p) { p.page_deltas[0].page = 64; }},
      {"page index", [](StepPlan& p) { p.page_deltas[0].page_index = 32; }},
      {"token write past the end", [](StepPlan& p) { p.token_writes[0].position = 126; }},
      {"token write from nowhere", [](StepPlan& p) { p.token_writes[0].begin = 2; }},
      {"token write of the largest count", [](StepPlan& p) { p.token_writes[0].count = 0x7fffffff; }},
      {"token id", [](StepPlan& p) { p.token_ids[0] = 100; }},
      {"negative token id", [](StepPlan& p) { p.token_ids[1] = -1; }},
      {"sampling row", [](StepPlan& p) { p.sampling_deltas[0].row = -1; }},
      {"NaN temperature", [](StepPlan& p) { p.sampling_deltas[0].sampling.temperature = std::nanf(""); }},
      {"bias id",
       [](StepPlan& p) {
         p.sampling_deltas[0].sampling.logit_bias = {{100, 1.0f}};
       }},
      {"cache group",
       [](StepPlan& p) {
         p.cache_ops.push_back({1, 0, 1});
       }},
      {"cache page",
       [](StepPlan& p) {
         p.cache_ops.push_back({0, 0, 64});
       }},
      {"no rows", [](StepPlan& p) { p.rows.clear(); }},
      {"prefill rows", [](StepPlan& p) { p.num_prefill_rows = 2; }},
      {"decode row of three tokens", [](StepPlan& p) { p.num_prefill_rows = 0; }},
      {"row", [](StepPlan& p) { p.rows[0].row = 8; }},
      {"row past the end", [](StepPlan& p) { p.rows[0].position = 126; }},
      {"row twice", [](StepPlan& p) { p.rows.push_back(p.rows[0]); }},
      {"slots missing", [](StepPlan& p) { p.slots.pop_back(); }},
      {"slot", [](StepPlan& p) { p.slots[0] = 256; }},
      {"logit row", [](StepPlan& p) { p.logit_rows[0] = 3; }},
      {"logit rows not ascending", [](StepPlan& p) { p.logit_rows.push_back(1); }},
      {"sample of no logit row", [](StepPlan& p) { p.samples[0].logit_row = 1; }},
      {"sample of another row", [](StepPlan& p) { p.samples[0].row = 1; }},
      {"sample at another position", [](StepPlan& p) { p.samples[0].position = 4; }},
      {"target token",
       [](StepPlan& p) {
         p.targets.push_back({0, 100, 0});
       }},
      {"target row",
       [](StepPlan& p) {
         p.targets.push_back({1, 0, 0});
       }},
      {"graph", [](StepPlan& p) { p.graph_size = 1; }},
  };
  CountingEngine engine;
  for (const auto& [name, break_plan] : faults) {
    StepPlan plan = prompt_plan(1, 0, 0, {5, 6, 7});
    break_plan(plan);
    const StepHandle handle = engine.executor.launch(plan);
    const StepResult& result = handle->wait(kForever);
    EXPECT_EQ(result.status, StepResult::Status::kRejected) << name;
    EXPECT_FALSE(result.message.empty()) << name;
  }
  EXPECT_EQ(engine.model.forwards, 0);
  const StepHandle handle = engine.executor.launch(prompt_plan(2, 0, 0, {5, 6, 7}));
  EXPECT_EQ(handle->wait(kForever).token_ids, std::vector<int32_t>{8}) << "the engine goes on";
}

}  // namespace
}  // namespace minisgl
