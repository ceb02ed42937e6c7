// Each bug of the engines we learn from that concerns the scheduler, by the behaviour that is right. Most are traces over the fake
// executor, which sees a wrong read of KV at the step that does it.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "scheduler/fake_executor.h"
#include "scheduler/scheduler.h"
#include "scheduler/trace_runner.h"
#include "scheduler/validation.h"

namespace minisgl::test {
namespace {

std::string play(std::string_view trace) {
  return TraceRunner().run(trace);
}

// mini-sglang: when a running request's prefix is in the tree at insertion, its own pages went back to the free list while its page table
// still pointed at them.
TEST(SchedulerRegression, APageTableNeverPointsAtDuplicatesThatWereGivenBack) {
  EXPECT_EQ(play(R"(
    config page_size=1 pages=48 overlap=0
    arrive a prompt=1..10 max=12
    arrive b prompt=1..10 max=12 prompt_logprobs choice=1
    arrive c prompt=31..38 max=4
    finish
    expect ended a length
    expect ended b length
    expect ended c length
    )"),
            "");
  EXPECT_EQ(play(R"(
    config page_size=2 pages=24 overlap=1 budget=6 admission=expected
    arrive a prompt=1..10 max=12
    finish
    arrive b prompt=1..10 max=12 prompt_logprobs
    arrive c prompt=31..38 max=14
    arrive d prompt=41..48 max=4
    finish
    expect ended b length
    expect ended c length
    )"),
            "");
}

// mini-sglang: the row of a request that ended by a token was handed out while the step in flight still wrote its sample into it.
TEST(SchedulerRegression, ARowIsNotReusedWhileAStepInFlightWritesToIt) {
  EXPECT_EQ(play(R"(
    config overlap=1 rows=1 page_size=4 pages=32
    arrive a prompt=1..3 max=9 stop=0..99
    arrive b prompt=5..40 max=3
    arrive c prompt=6..40 max=3 stop=0..99
    arrive d prompt=7..40 max=3
    finish
    expect ended a stop
    expect ended b length
    expect ended d length
    )"),
            "");
}

// mini-sglang: with overlap, one token more than without was reported after an end-of-sequence token.
TEST(SchedulerRegression, NothingFollowsTheLastToken) {
  for (const char* overlap : {"0", "1"}) {
    EXPECT_EQ(play(std::string("config overlap=") + overlap + R"(
      arrive a prompt=1..5 max=8 stop=0..99
      finish
      expect tokens a 1
      expect ended a stop
      )"),
              "");
  }
}

// mini-sglang: the launch-time counter said "finished" a step early.
TEST(SchedulerRegression, MaxTokensAreCountedWhenTheyHaveCome) {
  EXPECT_EQ(play(R"(
    config overlap=1
    arrive one prompt=1 max=1
    arrive two prompt=2 max=2
    arrive five prompt=3 max=5
    step
    expect ended one open
    step
    expect ended one length
    expect ended two open
    step
    expect ended two length
    expect tokens two 2
    step 2
    expect tokens five 4
    expect ended five open
    step
    expect tokens five 5
    expect ended five length
    )"),
            "");
}

// mini-sglang: admission counted tokens, not pages, and ran out of pages in the middle.
TEST(SchedulerRegression, AdmissionCountsWholePages) {
  for (const char* cache : {"radix", "naive"}) {
    std::string trace = std::string("config page_size=16 pages=8 rows=12 cache=") + cache + "\n";
    for (int i = 0; i < 12; ++i) {
      trace += fmt::format("arrive r{} prompt={}..{} max=10\n", i, 5 * i, 5 * i + 9);
    }
    trace += "step\nexpect running 4\nfinish\nexpect sat_out 0\nexpect preemptions 0\n";
    for (int i = 0; i < 12; ++i) trace += fmt::format("expect ended r{} length\n", i);
    EXPECT_EQ(play(trace), "") << cache;
  }
}

// mini-sglang: an abort between launch and result of a prefill released the request twice, and its pages were free and cached at once.
TEST(SchedulerRegression, AnAbortInFlightReleasesOnce) {
  for (int step = 1; step <= 6; ++step) {
    EXPECT_EQ(play(fmt::format(R"(
      config overlap=1 page_size=1 pages=64 budget=6
      arrive a prompt=1..12 max=4
      arrive b prompt=1..12 max=4 choice=1
      step {}
      abort a
      finish
      expect ended b length
      expect tokens b 4
      )",
                               step)),
              "")
        << "aborted after step " << step;
  }
}

// mini-sglang: running requests were a set hashed by address; ranks ordered a batch differently.
TEST(SchedulerRegression, TheOrderOfABatchIsThatOfArrival) {
  FakeExecutor::Settings settings;
  settings.limits = {
      .rows = 8, .max_tokens = 64, .max_model_len = 64, .num_pages = 64, .page_size = 4, .cache_groups = 1, .vocab_size = 100};
  FakeExecutor executor(settings);
  executor.keep_plans = true;
  Scheduler scheduler(executor, {.max_running_requests = 8, .num_pages = 64, .page_size = 4, .max_prefill_tokens = 64},
                      [](const RequestOutput&) {});
  std::vector<int32_t> lengths = {7, 3, 9, 1, 5};
  for (const int32_t length : lengths) {
    auto request = std::make_shared<Request>();
    request->prompt_token_ids.assign(static_cast<size_t>(length), length);
    request->sampling.prompt_tokens = length;
    request->max_tokens = 3;
    scheduler.add(request);
  }
  while (scheduler.has_work()) scheduler.step();
  ASSERT_GE(executor.plans.size(), 2u);
  const StepPlan& decode = executor.plans[1];
  ASSERT_EQ(decode.rows.size(), lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(decode.rows[i].position, lengths[i]);
}

// mini-sglang: one SamplingParams object given to all prompts was clipped in place.
TEST(SchedulerRegression, SamplingParametersBelongToTheirRequest) {
  const RequestLimits limits{
      .vocab_size = 100, .max_model_len = 60, .page_size = 4, .num_pages = 64, .eos_token_ids = {}, .generation = {}, .tokenizer = {}};
  SamplingParams sampling;
  sampling.max_tokens = 50;
  EXPECT_EQ(make_request(std::vector<int32_t>(5, 1), sampling, 1, 0, limits)->max_tokens, 50);
  EXPECT_EQ(make_request(std::vector<int32_t>(55, 1), sampling, 1, 0, limits)->max_tokens, 5);
  EXPECT_EQ(make_request(std::vector<int32_t>(5, 1), sampling, 1, 0, limits)->max_tokens, 50);
  EXPECT_EQ(sampling.max_tokens, 50);
}

// mini-sglang: a prompt that can never fit was dropped without an answer; others: it sat at the head of the queue for ever.
TEST(SchedulerRegression, WhatCanNeverFitIsAnswered) {
  EXPECT_EQ(play(R"(
    config pages=2 page_size=1
    arrive a prompt=1,2,3 max=4
    expect ended a error
    arrive b prompt=1 max=1
    finish
    expect ended b length
    )"),
            "");
}

// mini-sglang: the chunks of a long prompt were shared only when the last one was done.
TEST(SchedulerRegression, ChunksAreSharedAsTheyCommit) {
  EXPECT_EQ(play(R"(
    config page_size=4 budget=8 overlap=0
    arrive a prompt=1..40 max=2
    step 2
    expect cached_pages 4
    abort a
    arrive b prompt=1..40 max=2 choice=1
    finish
    expect cached b 16
    )"),
            "");
}

// mini-sglang: equal prompts that arrive together were all computed.
TEST(SchedulerRegression, EqualPromptsThatArriveTogetherAreComputedOnce) {
  EXPECT_EQ(play(R"(
    config page_size=4 overlap=1
    arrive a prompt=1..41 max=1
    arrive b prompt=1..41 max=1 choice=1
    arrive c prompt=1..41 max=1 choice=2
    finish
    expect cached b 40
    expect cached c 40
    expect computed 43
    )"),
            "");
}

// SGLang: requests that waited for a prefix were left waiting when the one that computed it went away.
TEST(SchedulerRegression, AHeldRequestGoesOnWhenItsWriterEnds) {
  EXPECT_EQ(play(R"(
    config page_size=4 budget=8 overlap=1
    arrive a prompt=1..12 max=2
    arrive b prompt=1..40 max=2
    step 2
    expect holds 1
    expect running 1
    abort a
    finish
    expect ended b length
    expect cached b 8
    )"),
            "");
}

// SGLang: a half-computed request that was retracted entered the cache half-written.
TEST(SchedulerRegression, OnlyCommittedPagesOfAStoppedPromptAreShared) {
  EXPECT_EQ(play(R"(
    config page_size=2 budget=6 overlap=1
    arrive a prompt=1..30 max=2
    step 2
    expect cached_pages 3                       # the second chunk is in flight
    abort a
    step
    expect cached_pages 3
    arrive b prompt=1..30 max=2
    finish
    expect cached b 6
    )"),
            "");
}

// vLLM, SGLang: one large request starves behind small ones, or stops everything behind it for ever.
TEST(SchedulerRegression, ALargeRequestIsNotOvertakenForEver) {
  std::string trace =
      "config pages=8 page_size=4 admission=full policy=lpm\narrive a prompt=1..4 max=12\nstep\narrive big prompt=50..69 max=12\n";
  for (int i = 0; i < 80; ++i) trace += fmt::format("arrive s{} prompt=1..4,{} max=4\nstep\n", i, i);
  EXPECT_EQ(play(trace + "step 40\nexpect ended big length\nfinish\n"), "");
}

}  // namespace
}  // namespace minisgl::test
