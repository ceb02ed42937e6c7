#include "base/compute_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace minisgl {

namespace {

constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr size_t kCacheLineBytes = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins until done() or kSpinTime has passed; whether done() came true.
template <typename Done>
bool spin_until(const Done& done) {
  if (done()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    relax();
    if (done()) return true;
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

/// Set while this thread runs a body: a job inside a job would wait for itself.
thread_local bool inside_body = false;

}  // namespace

/// How a job runs. Its caller holds `callers`, writes the job's description, then `unfinished` and `unclaimed`. Every member claims chunks
/// by counting `unclaimed` down. The description is read only by a member that holds a chunk, and the caller leaves (so that the next job
/// may be described) only when `unfinished` is zero, that is when nobody holds one. A member that comes late finds zero to claim, or a
/// chunk of the next job, which is as good.
struct ComputePool::State {
  // Description of the job; pinned while a chunk is held.
  Invoke invoke = nullptr;
  const void* context = nullptr;
  int64_t items = 0;
  int64_t grain = 0;
  int64_t chunks = 0;

  alignas(kCacheLineBytes) std::atomic<int64_t> unclaimed{0};
  alignas(kCacheLineBytes) std::atomic<int> unfinished{0};
  /// Counts jobs (and the stop): what an idle worker waits on.
  alignas(kCacheLineBytes) std::atomic<int> epoch{0};
  std::atomic<bool> stopping{false};

  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  alignas(kCacheLineBytes) std::mutex callers;
  std::vector<std::thread> workers;

  void run_chunk(int64_t chunk, int member) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    const int64_t begin = chunk * grain;
    const int64_t end = std::min(items, begin + grain);
    inside_body = true;
    try {
      invoke(context, begin, end, member);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
    inside_body = false;
  }

  void run_chunks(int member) {
    int64_t left = unclaimed.load(std::memory_order_acquire);
    while (left > 0) {
      // acquire: pairs with the store of `unclaimed` that published the description.
      if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      run_chunk(chunks - left, member);
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
      left = unclaimed.load(std::memory_order_acquire);
    }
  }

  void stop() {
    stopping.store(true);
    epoch.fetch_add(1);
    epoch.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void work(int member) {
    while (true) {
      const int seen = epoch.load();
      run_chunks(member);
      if (stopping.load()) return;
      if (!spin_until([&] { return epoch.load(std::memory_order_acquire) != seen; })) epoch.wait(seen);
    }
  }
};

ComputePool::ComputePool(int threads) : state_(std::make_unique<State>()) {
  MINISGL_CHECK(threads >= 1, "a pool of {} threads", threads);
  state_->workers.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int member = 1; member < threads; ++member) {
      state_->workers.emplace_back([state = state_.get(), member] { state->work(member); });
    }
  } catch (const std::system_error& error) {
    const size_t started = state_->workers.size() + 1;
    state_->stop();
    fail(ErrorKind::kUsage, "the system refuses to start {} threads, it gave {} ({}): set --threads to fewer", threads, started,
         error.code().message());
  }
}

ComputePool::~ComputePool() {
  state_->stop();
}

int ComputePool::threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ComputePool::run(int64_t items, int64_t grain, Invoke invoke, const void* context) {
  MINISGL_CHECK(grain > 0, "grain {}", grain);
  MINISGL_CHECK(!inside_body, "a job was started from inside a job");
  if (items <= 0) return;
  State& state = *state_;
  const int64_t chunks = (items - 1) / grain + 1;
  MINISGL_CHECK(chunks <= std::numeric_limits<int>::max(), "{} chunks", chunks);

  const std::lock_guard queue(state.callers);
  state.invoke = invoke;
  state.context = context;
  state.items = items;
  state.grain = grain;
  state.chunks = chunks;
  if (chunks == 1 || state.workers.empty()) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) state.run_chunk(chunk, 0);
  } else {
    state.unfinished.store(static_cast<int>(chunks), std::memory_order_relaxed);
    state.unclaimed.store(chunks, std::memory_order_release);
    state.epoch.fetch_add(1);
    state.epoch.notify_all();  // no system call unless a worker is parked
    state.run_chunks(0);
    const auto finished = [&] { return state.unfinished.load(std::memory_order_acquire) == 0; };
    if (!spin_until(finished)) {
      // A worker holds a chunk and the system has descheduled it: parking here frees this CPU, where the worker can go on.
      for (int left = state.unfinished.load(std::memory_order_acquire); left != 0;
           left = state.unfinished.load(std::memory_order_acquire)) {
        state.unfinished.wait(left);
      }
    }
  }
  if (state.failed.load(std::memory_order_relaxed)) {
    state.failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(state.error, nullptr));
  }
}

int check_threads(int64_t threads) {
  if (threads < 0 || threads > kMaxThreads) {
    fail_param(ErrorKind::kUsage, "threads", "--threads is {}; allowed is 0 to {}", threads, kMaxThreads);
  }
  return static_cast<int>(threads);
}

ComputePool& process_compute_pool(int threads) {
  MINISGL_CHECK(threads >= 0, "a pool of {} threads", threads);
  static std::mutex mutex;
  // Never destroyed: a thread may still be inside a job when the process exits.
  static ComputePool* pool = nullptr;
  const std::lock_guard lock(mutex);
  if (pool == nullptr) pool = new ComputePool(threads == 0 ? std::min(available_cpus(), kMaxThreads) : threads);
  if (threads != 0 && threads != pool->threads()) {
    fail(ErrorKind::kUsage, "the compute pool of this process already has {} threads, it cannot have {} as well", pool->threads(), threads);
  }
  return *pool;
}

}  // namespace minisgl
