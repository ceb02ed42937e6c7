// The promise of tier A (docs/numerics.md): how the scheduler cuts and orders the work changes no bit of tokens or log-probabilities.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "llm/llm_impl.h"
#include "llm/llm_test_util.h"
#include "scheduler/scheduler.h"
#include "scheduler/validation.h"

namespace minisgl {
namespace {

using test::fixture_config;

enum class Arrival { kTogether, kRandom };

/// One way to do the same work.
struct Variant {
  std::string name;
  bool overlap;
  PrefixCacheKind cache;
  int64_t budget;
  bool mixed;
  Arrival arrival;
  SchedulePolicy policy = SchedulePolicy::kFcfs;
  /// Few pages, and expectations that are too low.
  bool preempt = false;
};

// Together with three page sizes these cover every pair of settings.
constexpr auto kRadix = PrefixCacheKind::kRadix;
constexpr auto kNaive = PrefixCacheKind::kNaive;
const std::vector<Variant> kVariants = {
    {"plain, whole", false, kNaive, 8192, false, Arrival::kTogether},
    {"overlap, radix, 5", true, kRadix, 5, false, Arrival::kRandom},
    {"overlap, naive, mixed, 64", true, kNaive, 64, true, Arrival::kTogether},
    {"radix, mixed, 7", false, kRadix, 7, true, Arrival::kRandom, SchedulePolicy::kLpm},
    {"overlap, radix, mixed, whole", true, kRadix, 8192, true, Arrival::kTogether, SchedulePolicy::kLpm},
    {"overlap, radix, 64, preempted", true, kRadix, 64, false, Arrival::kTogether, SchedulePolicy::kFcfs, true},
    {"naive, 5, preempted", false, kNaive, 5, true, Arrival::kRandom, SchedulePolicy::kFcfs, true},
};

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (int i = 0; i < 128; ++i) {
    Variant v{.name = "variant " + std::to_string(i),
              .overlap = (i & 1) != 0,
              .cache = (i & 2) != 0 ? kRadix : kNaive,
              .budget = std::array<int64_t, 4>{5, 7, 64, 8192}[static_cast<size_t>(i / 4 % 4)],
              .mixed = (i & 16) != 0,
              .arrival = (i & 32) != 0 ? Arrival::kRandom : Arrival::kTogether,
              .preempt = (i & 64) != 0};
    v.policy = i % 3 == 0 ? SchedulePolicy::kLpm : SchedulePolicy::kFcfs;
    variants.push_back(std::move(v));
  }
  return variants;
}

class SchedulingInvariance : public ::testing::TestWithParam<std::string> {
 protected:
  struct Work {
    std::vector<int32_t> prompt;
    SamplingParams sampling;
    int choice = 0;
  };

  /// Prompts of the fixture and two that begin like another, with every kind of sampling that reads the row's history.
  static std::vector<Work> work(const std::string& name) {
    const fixtures::Model model = fixtures::load(name);
    std::vector<Work> all;
    for (size_t i = 0; i < std::min<size_t>(model.cases.size(), 6); ++i) {
      Work item{.prompt = model.cases[i].input_ids, .sampling = {}};
      item.sampling.max_tokens = 8;
      item.sampling.ignore_eos = true;
      item.sampling.logprobs = 2;
      if (i % 2 == 0) item.sampling.prompt_logprobs = 1;
      all.push_back(item);
    }
    all[1].sampling.temperature = 1.0;
    all[2].sampling.temperature = 0.8;
    all[2].sampling.top_p = 0.9;
    all[3].sampling.repetition_penalty = 1.3;
    all[3].sampling.presence_penalty = 0.5;
    all[3].sampling.frequency_penalty = 0.25;
    all[4].sampling.ignore_eos = false;
    all[4].sampling.min_tokens = 4;
    all[4].sampling.logit_bias = {{5, 1.5}, {9, -3.0}};
    const auto longest =
        std::max_element(all.begin(), all.end(), [](const Work& a, const Work& b) { return a.prompt.size() < b.prompt.size(); });
    Work sibling = *longest;
    sibling.sampling.prompt_logprobs = -1;
    sibling.sampling.temperature = 1.0;
    Work branch = sibling;
    branch.prompt.resize(branch.prompt.size() * 3 / 4);
    branch.prompt.push_back(3);
    for (int choice = 0; choice < 2; ++choice) {
      sibling.choice = choice;
      all.push_back(sibling);
    }
    all.push_back(branch);
    return all;
  }

  static std::shared_ptr<Request> request(const LLM::Impl& llm, const Work& item) {
    return make_request(item.prompt, item.sampling, 11, item.choice, llm.limits);
  }

  /// Runs all of `items` through a scheduler of this kind, twice: the second time their prefixes are cached.
  static void run(LLM::Impl& llm, const Variant& variant, const std::vector<Work>& items, std::vector<std::vector<RequestResult>>& passes) {
    const int64_t page_size = llm.memory_plan().page_size;
    int64_t largest = 0;
    int64_t sum = 0;
    for (const Work& item : items) {
      const auto pages = (static_cast<int64_t>(item.prompt.size()) + *item.sampling.max_tokens + page_size - 1) / page_size;
      largest = std::max(largest, pages);
      sum += pages;
    }
    SchedulerConfig config;
    config.max_running_requests = llm.config.max_running_requests;
    config.page_size = page_size;
    config.num_pages = variant.preempt ? std::min(largest + 1 + sum / 8, llm.memory_plan().num_pages) : llm.memory_plan().num_pages;
    config.max_prefill_tokens = std::min(variant.budget, llm.memory_plan().max_step_tokens);
    config.cache = variant.cache;
    config.policy = variant.policy;
    config.mixed_steps = variant.mixed;
    config.overlap = variant.overlap;
    config.expected_output_floor_tokens = variant.preempt ? 2 : 64;
    config.output_insertion_tokens = 4;
    Scheduler scheduler(llm.engine->executor(), config, [](const RequestOutput&) {});
    const auto finish = [&] {
      while (scheduler.has_work()) {
        scheduler.step();
        scheduler.check_integrity();
      }
    };
    if (variant.preempt) {  // teaches it that outputs are short
      Work brief = items[0];
      brief.prompt.resize(1);
      brief.sampling.max_tokens = 1;
      scheduler.add(request(llm, brief));
      finish();
    }
    std::mt19937 random(5);
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<std::shared_ptr<Request>> requests;
      for (const Work& item : items) {
        requests.push_back(request(llm, item));
        scheduler.add(requests.back());
        if (variant.arrival == Arrival::kRandom) {
          for (auto steps = random() % 4; steps > 0; --steps) scheduler.step();
        }
      }
      finish();
      std::vector<RequestResult>& results = passes.emplace_back();
      for (auto& done : requests) results.push_back(std::move(done->result));
    }
    if (variant.cache == PrefixCacheKind::kRadix && !variant.preempt) {
      EXPECT_GT(passes.back().back().cached_tokens, 0) << "the second time, the prompt was to be in the cache";
    }
    preemptions_ += scheduler.stats().preemptions;
  }

  void check(const std::vector<Variant>& variants) {
    const std::vector<Work> items = work(GetParam());
    std::vector<RequestResult> reference;
    preemptions_ = 0;
    for (const int64_t page_size : {16, 1, 4}) {
      EngineConfig config = fixture_config(GetParam());
      config.page_size = page_size;
      LLM llm(config);
      if (reference.empty()) {  // each alone
        std::vector<std::vector<RequestResult>> alone;
        for (const Work& item : items) {
          run(llm.impl(), kVariants[0], {item}, alone);
          reference.push_back(alone.back()[0]);
        }
      }
      for (const Variant& variant : variants) {
        std::vector<std::vector<RequestResult>> passes;
        run(llm.impl(), variant, items, passes);
        for (size_t pass = 0; pass < passes.size(); ++pass) {
          for (size_t i = 0; i < items.size(); ++i) {
            SCOPED_TRACE(variant.name + ", page size " + std::to_string(page_size) + ", pass " + std::to_string(pass) + ", request " +
                         std::to_string(i));
            expect_equal(passes[pass][i], reference[i]);
          }
        }
      }
    }
    EXPECT_GT(preemptions_, 0);
  }

  static void expect_equal(const RequestResult& actual, const RequestResult& expected) {
    ASSERT_FALSE(actual.error) << actual.error->message;
    ASSERT_EQ(actual.token_ids, expected.token_ids);
    ASSERT_EQ(actual.finish_reason, expected.finish_reason);
    const auto equal = [](const TokenLogprob& a, const TokenLogprob& b) {
      return a.token_id == b.token_id && a.logprob == b.logprob && a.top == b.top;
    };
    ASSERT_EQ(actual.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < actual.logprobs.size(); ++i) ASSERT_TRUE(equal(actual.logprobs[i], expected.logprobs[i])) << "token " << i;
    ASSERT_EQ(actual.prompt_logprobs.size(), expected.prompt_logprobs.size());
    for (size_t i = 1; i < actual.prompt_logprobs.size(); ++i) {
      ASSERT_TRUE(equal(*actual.prompt_logprobs[i], *expected.prompt_logprobs[i])) << "prompt token " << i;
    }
  }

  static inline int64_t preemptions_ = 0;
};

TEST_P(SchedulingInvariance, NothingChangesABit) {
  check(kVariants);
}

class LongSchedulingInvariance : public SchedulingInvariance {};

TEST_P(LongSchedulingInvariance, NothingChangesABitInTheWholeProduct) {
  check(all_variants());
}

INSTANTIATE_TEST_SUITE_P(All, SchedulingInvariance, ::testing::ValuesIn(fixtures::model_names()), fixtures::test_name);
INSTANTIATE_TEST_SUITE_P(LongAll, LongSchedulingInvariance, ::testing::ValuesIn(fixtures::model_names()), fixtures::test_name);

}  // namespace
}  // namespace minisgl
