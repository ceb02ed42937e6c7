#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace minisgl {

/// The threads that run CPU operators. One per process, shared by every engine instance: see process_compute_pool().
///
/// A job is a range of items cut into chunks; members take chunks from a shared counter, so a member that the system has descheduled
/// delays at most the chunk it holds. Which member runs a chunk never influences a result: each output element is computed whole by one
/// chunk. The calling thread works as member 0. Jobs of different callers queue for the pool and run one at a time.
/// A waiting member spins for at most 20 us, then parks. Thread safe.
class ComputePool {
 public:
  /// `threads` >= 1, including the caller: `threads - 1` workers are started. Throws Error(kUsage) if the system refuses one of them.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const;

  /// Runs body(begin, end, member) over [0, items) in chunks of at most `grain` items; returns when all of them are done. `member` is in
  /// [0, threads()) and no two chunks run under the same member at once: it indexes per-member scratch memory. An exception from `body`
  /// is rethrown here after the job has ended. Must not be called from inside a body. Allocates nothing.
  template <typename Body>
  void parallel_for(int64_t items, int64_t grain, const Body& body) {
    run(
        items, grain,
        [](const void* context, int64_t begin, int64_t end, int member) { (*static_cast<const Body*>(context))(begin, end, member); },
        &body);
  }

 private:
  using Invoke = void (*)(const void* context, int64_t begin, int64_t end, int member);
  void run(int64_t items, int64_t grain, Invoke invoke, const void* context);

  struct State;
  std::unique_ptr<State> state_;
};

/// CPUs this process may use: the smaller of its affinity mask and its cgroup quota (rounded down), at least 1.
int available_cpus();

/// CPUs that a control group grants by its quota (version 2 cpu.max, version 1 cfs_quota_us), its ancestors' included; infinity if there is
/// no quota. `membership_file` has the form of /proc/self/cgroup, `mount` is where the hierarchies are mounted (/sys/fs/cgroup).
double cgroup_cpu_quota(const std::string& membership_file, const std::string& mount);

/// Most threads that a pool may be asked for.
inline constexpr int kMaxThreads = 1024;
/// `threads` as a user gave it; throws Error(kUsage) unless it is 0 (the CPUs of this process) to kMaxThreads.
int check_threads(int64_t threads);

/// The pool of this process. The first call starts it with `threads` (0: available_cpus()); a later call with another number throws
/// Error(kUsage) that names both numbers; 0 always fits.
ComputePool& process_compute_pool(int threads = 0);

}  // namespace minisgl
