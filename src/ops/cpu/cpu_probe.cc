#include "ops/cpu/cpu_probe.h"

#include <atomic>
#include <chrono>
#include <cstring>

#include "ops/cpu/cpu_probe_kernel.h"

namespace minisgl::cpu {

namespace {

constexpr size_t kReadBytes = size_t{512} << 20;
constexpr size_t kReadChunkBytes = size_t{256} << 10;
constexpr int64_t kStepsPerChunk = 20000;
constexpr int64_t kChunksPerMember = 400;

const ProbeKernel& kernel_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return avx512::kProbeKernel;
    case Isa::kAvx2:
      return avx2::kProbeKernel;
#endif
    default:
      return portable::kProbeKernel;
  }
}

/// Runs body as a job of the pool; seconds it took.
template <typename Body>
double seconds_of(ComputePool& pool, int64_t items, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(items, 1, body);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CpuProbe::CpuProbe(ComputePool& pool, Isa isa) : pool_(pool), isa_(isa), buffer_(Device{}, kReadBytes) {
  // Untouched pages all map to one page of zeros, which would be read from the cache.
  pool_.parallel_for(static_cast<int64_t>(kReadBytes / kReadChunkBytes), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      std::memset(static_cast<char*>(buffer_.data()) + static_cast<size_t>(chunk) * kReadChunkBytes, 1, kReadChunkBytes);
    }
  });
}

double CpuProbe::read_bandwidth_gbps() {
  const ProbeKernel& kernel = kernel_of(isa_);
  std::atomic<uint32_t> sink{0};
  const double seconds = seconds_of(pool_, static_cast<int64_t>(kReadBytes / kReadChunkBytes), [&](int64_t begin, int64_t, int) {
    sink.fetch_xor(kernel.read(static_cast<const char*>(buffer_.data()) + static_cast<size_t>(begin) * kReadChunkBytes, kReadChunkBytes),
                   std::memory_order_relaxed);
  });
  return static_cast<double>(kReadBytes) / seconds * 1e-9;
}

double CpuProbe::fma_gflops() {
  const ProbeKernel& kernel = kernel_of(isa_);
  const int64_t chunks = pool_.threads() * kChunksPerMember;
  std::atomic<float> sink{0.0f};
  const double seconds =
      seconds_of(pool_, chunks, [&](int64_t, int64_t, int) { sink.store(kernel.multiply_add(kStepsPerChunk), std::memory_order_relaxed); });
  return static_cast<double>(chunks * kStepsPerChunk * kernel.step_operations) / seconds * 1e-9;
}

}  // namespace minisgl::cpu
