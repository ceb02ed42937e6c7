#include "scheduler/fuzz.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace minisgl::test {
namespace {

constexpr int kStepsPerRun = 400;

int64_t environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

/// Runs worlds from `seed` on until `steps` scheduler steps are done.
void fuzz(uint64_t seed, int64_t steps) {
  Scheduler::Stats sum;
  SchedulerFuzz::Endings endings;
  int64_t done = 0;
  for (; done < steps; ++seed) {
    SchedulerFuzz world(seed);
    world.run(kStepsPerRun);
    ASSERT_TRUE(world.error().empty()) << world.describe() << "\n" << world.error();
    done += world.steps();
    sum.preemptions += world.stats().preemptions;
    sum.holds += world.stats().holds;
    sum.sat_out += world.stats().sat_out;
    sum.dropped += world.stats().dropped;
    sum.evicted_pages += world.stats().evicted_pages;
    endings.stop += world.endings().stop;
    endings.stop_string += world.endings().stop_string;
    endings.length += world.endings().length;
    endings.abort += world.endings().abort;
    endings.error += world.endings().error;
  }
  std::printf(
      "%lld steps, last seed %llu: %lld preemptions, %lld holds, %lld rows sat out, %lld tokens dropped, %lld pages evicted; "
      "%lld stopped, %lld by a string, %lld by length, %lld aborted, %lld failed\n",
      static_cast<long long>(done), static_cast<unsigned long long>(seed - 1), static_cast<long long>(sum.preemptions),
      static_cast<long long>(sum.holds), static_cast<long long>(sum.sat_out), static_cast<long long>(sum.dropped),
      static_cast<long long>(sum.evicted_pages), static_cast<long long>(endings.stop), static_cast<long long>(endings.stop_string),
      static_cast<long long>(endings.length), static_cast<long long>(endings.abort), static_cast<long long>(endings.error));
  if (done < 200000) return;
  // A fuzz that never reaches a mechanism says nothing about it.
  EXPECT_GT(sum.preemptions, done / 1000);
  EXPECT_GT(sum.holds, done / 1000);
  EXPECT_GT(sum.sat_out, 0);
  EXPECT_GT(sum.dropped, done / 1000);
  EXPECT_GT(sum.evicted_pages, done / 100);
  EXPECT_GT(endings.stop, done / 1000);
  EXPECT_GT(endings.stop_string, done / 1000);
  EXPECT_GT(endings.error, 0);
}

/// MINISGL_TEST_FUZZ_SEED and MINISGL_TEST_FUZZ_STEPS choose other worlds and more of them; a failure names the seed of its world.
TEST(SchedulerFuzzTest, HalfAMillionSteps) {
  fuzz(static_cast<uint64_t>(environment("MINISGL_TEST_FUZZ_SEED", 1)), environment("MINISGL_TEST_FUZZ_STEPS", 500000));
}

TEST(LongSchedulerFuzzTest, TenMillionSteps) {
  fuzz(static_cast<uint64_t>(environment("MINISGL_TEST_FUZZ_SEED", 1000000)), environment("MINISGL_TEST_FUZZ_STEPS", 10000000));
}

}  // namespace
}  // namespace minisgl::test
