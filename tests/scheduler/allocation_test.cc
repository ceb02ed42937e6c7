// Steps of running requests allocate nothing (rule 10): the test program's operator new is replaced by one that counts. (Not inlined: GCC
// would take malloc and free for mismatched partners of new and delete.) Optimised builds only: others recount all states in every step.

#ifdef NDEBUG

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "scheduler/scheduler.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace minisgl {
namespace {

/// Answers every sample with a token at once.
class InstantExecutor final : public Executor {
 public:
  StepHandle launch(const StepPlan& plan) override {
    InstantStep& step = steps_[plan.step % steps_.size()];
    step.result.clear();
    for (const auto& sample : plan.samples) {
      step.result.token_ids.push_back(1 + sample.position % 50);
      step.result.row_status.push_back(RowStatus::kOk);
      step.result.logprobs.emplace_back();
    }
    return StepHandle(&step);
  }
  int max_in_flight() const override { return 2; }
  void abort() noexcept override {}

 private:
  struct InstantStep final : public Step {
    const StepResult& wait(std::chrono::steady_clock::time_point) override { return result; }
    void sample(const LateInputs&) override {}
    void release() noexcept override {}
    StepResult result;
  };
  std::array<InstantStep, 3> steps_;
};

TEST(SchedulerAllocationTest, ADecodeStepAllocatesNothing) {
  for (const bool overlap : {false, true}) {
    for (const PrefixCacheKind cache : {PrefixCacheKind::kRadix, PrefixCacheKind::kNaive}) {
      InstantExecutor executor;
      int64_t tokens = 0;
      Scheduler scheduler(executor,
                          {.max_running_requests = 32,
                           .num_pages = 2048,
                           .page_size = 4,
                           .max_prefill_tokens = 512,
                           .cache = cache,
                           .overlap = overlap,
                           .output_insertion_tokens = 8},
                          [&](const RequestOutput& output) { tokens += static_cast<int64_t>(output.token_ids.size()); });
      for (int32_t i = 0; i < 32; ++i) {
        auto request = std::make_shared<Request>();
        request->prompt_token_ids.assign(20, i);
        request->sampling.prompt_tokens = 20;
        request->max_tokens = 200;
        scheduler.add(request);
      }
      for (int i = 0; i < 20; ++i) scheduler.step();
      tokens = 0;
      const int64_t before = allocations.load();
      for (int i = 0; i < 100; ++i) scheduler.step();
      EXPECT_EQ(allocations.load() - before, 0);
      EXPECT_EQ(tokens, 3200);
      scheduler.abort_all();
    }
  }
}

}  // namespace
}  // namespace minisgl

#endif
