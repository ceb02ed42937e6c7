#include "base/compute_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace minisgl {
namespace {

TEST(ComputePool, RunsEveryItemOnceInChunksOfAtMostTheGrain) {
  for (const int threads : {1, 2, 5}) {
    ComputePool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t items : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(items));
        std::atomic<bool> chunks_fit{true};
        pool.parallel_for(items, grain, [&](int64_t begin, int64_t end, int member) {
          if (begin >= end || end - begin > grain || begin % grain != 0 || member < 0 || member >= threads) chunks_fit = false;
          for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
        });
        EXPECT_TRUE(chunks_fit) << items << " items, grain " << grain;
        for (const auto& count : runs) ASSERT_EQ(count, 1) << items << " items, grain " << grain << ", " << threads << " threads";
      }
    }
  }
}

TEST(ComputePool, NoTwoChunksRunUnderOneMember) {
  ComputePool pool(4);
  std::vector<std::atomic<int>> active(4);
  std::atomic<bool> overlapped{false};
  for (int job = 0; job < 200; ++job) {
    pool.parallel_for(16, 1, [&](int64_t, int64_t, int member) {
      if (active[static_cast<size_t>(member)].fetch_add(1) != 0) overlapped = true;
      std::this_thread::yield();
      active[static_cast<size_t>(member)].fetch_sub(1);
    });
  }
  EXPECT_FALSE(overlapped);
}

TEST(ComputePool, AJobSeesWhatTheJobBeforeWrote) {
  // Plain memory handed from job to job: a missing happens-before edge is a data race (and a wrong sum).
  ComputePool pool(3);
  std::mt19937 random(1);
  std::vector<int64_t> values(257, 0);
  for (int job = 0; job < 3000; ++job) {
    const int64_t grain = std::uniform_int_distribution<int64_t>(1, 100)(random);
    const auto items = static_cast<int64_t>(values.size());
    pool.parallel_for(items, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(items - 1 - i)] += 1;
    });
  }
  for (const int64_t value : values) ASSERT_EQ(value, 3000);
}

TEST(ComputePool, JobsOfSeveralCallersQueue) {
  ComputePool pool(2);
  std::atomic<int> running{0};
  std::atomic<bool> mixed{false};
  std::vector<std::thread> callers;
  std::vector<std::atomic<int64_t>> sums(3);
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&, caller] {
      for (int job = 0; job < 500; ++job) {
        pool.parallel_for(10, 3, [&](int64_t begin, int64_t end, int) {
          // At most two members work, so a third body at once belongs to a second job.
          if (running.fetch_add(1) >= 2) mixed = true;
          for (int64_t i = begin; i < end; ++i) sums[caller] += i;
          running.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_FALSE(mixed);
  for (const auto& sum : sums) EXPECT_EQ(sum, 500 * 45);
}

TEST(ComputePool, RethrowsAnExceptionAndStaysUsable) {
  for (const int threads : {1, 2}) {
    ComputePool pool(threads);
    for (int job = 0; job < 50; ++job) {
      EXPECT_THROW(pool.parallel_for(20, 1,
                                     [](int64_t begin, int64_t, int) {
                                       if (begin == 13) throw std::runtime_error("thirteen");
                                     }),
                   std::runtime_error);
      std::atomic<int> done{0};
      pool.parallel_for(20, 1, [&](int64_t, int64_t, int) { ++done; });
      EXPECT_EQ(done, 20);
    }
  }
}

TEST(ComputePool, RefusesAJobInsideAJob) {
  ComputePool pool(2);
  EXPECT_THROW(pool.parallel_for(4, 1, [&](int64_t, int64_t, int) { pool.parallel_for(1, 1, [](int64_t, int64_t, int) {}); }), Error);
}

TEST(ComputePool, WorkersWakeAfterTheyHaveParked) {
  ComputePool pool(2);
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> members{0};
    // Each chunk waits for the other, so the job ends only if the parked worker takes one.
    pool.parallel_for(2, 1, [&](int64_t, int64_t, int) {
      ++members;
      while (members < 2) std::this_thread::yield();
    });
    EXPECT_EQ(members, 2);
  }
}

TEST(ComputePool, OnePoolPerProcess) {
  ComputePool& pool = process_compute_pool(2);
  EXPECT_EQ(pool.threads(), 2);
  EXPECT_EQ(&process_compute_pool(), &pool);
  EXPECT_EQ(&process_compute_pool(2), &pool);
  try {
    process_compute_pool(3);
    FAIL() << "another number of threads was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find('2'), std::string::npos);
    EXPECT_NE(std::string(error.what()).find('3'), std::string::npos);
  }
}

// The sanitizers need address space themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ComputePool, AThreadThatCannotBeStartedIsAnErrorThatNamesTheNumber) {
  const auto start_in_little_space = [] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{200} << 20);  // some stacks, not a thousand
    const rlimit limit = {bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    try {
      ComputePool pool(1000);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(error.kind() == ErrorKind::kUsage ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(start_in_little_space(), ::testing::ExitedWithCode(0), "1000 threads");
}
#endif

TEST(ComputePool, TheNumberOfThreadsHasARange) {
  EXPECT_EQ(check_threads(0), 0);
  EXPECT_EQ(check_threads(1024), 1024);
  for (const int64_t threads : {int64_t{-1}, int64_t{1025}, (int64_t{1} << 32) + 1, int64_t{99999999999}}) {
    EXPECT_THROW(check_threads(threads), Error) << threads;
  }
}

class CgroupQuota : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { root_.write(path, text); }
  double quota() { return cgroup_cpu_quota(root_ / "membership", root_ / "mount"); }

  test::TemporaryFolder root_;
};

TEST_F(CgroupQuota, Version2TakesTheSmallestOfTheAncestors) {
  write("membership", "0::/pod/app\n");
  EXPECT_TRUE(std::isinf(quota()));
  write("mount/pod/app/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(quota()));
  write("mount/pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("mount/pod/app/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CgroupQuota, Version1ReadsTheCpuController) {
  write("membership", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n");
  write("mount/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(quota()));
  // The host's path of the group is not visible in a container; the mount point is the container's group.
  write("mount/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota(), 3.0);
}

TEST(AvailableCpus, IsAtLeastOneAndWithinTheAffinity) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_LE(available_cpus(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace minisgl
