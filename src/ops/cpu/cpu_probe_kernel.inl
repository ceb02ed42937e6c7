// The loops of the speed-of-light probes; included once for each instruction set (see simd.h).

#include "ops/cpu/cpu_probe_kernel.h"
#include "ops/cpu/simd.h"

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {
namespace {

// Two pipes of latency 4 (5 on some) need ten chains; twelve fit into sixteen registers.
constexpr int kChains = 12;

uint32_t read(const void* data, int64_t bytes) {
  constexpr int kStreams = 8;
  const auto* p = static_cast<const char*>(data);
  V sums[kStreams];
#pragma GCC unroll 16
  for (int i = 0; i < kStreams; ++i) sums[i] = zero();
  // max: one cycle or two a vector and no dependence on denormals; far above what memory delivers.
  for (int64_t at = 0; at < bytes; at += kStreams * kWidth * 4) {
#pragma GCC unroll 16
    for (int i = 0; i < kStreams; ++i) sums[i] = max(load(reinterpret_cast<const float*>(p + at) + i * kWidth), sums[i]);
  }
  for (int i = 1; i < kStreams; ++i) sums[0] = max(sums[i], sums[0]);
  return bits_of_float(reduce_max(sums[0]));
}

float multiply_add(int64_t steps) {
  V sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = broadcast(static_cast<float>(i));
  V factor = broadcast(0.999f);
  V term = broadcast(0.001f);
  for (int64_t step = 0; step < steps; ++step) {
    // Opaque to the compiler, which must not fold the steps.
    __asm__ volatile("" : "+x"(factor.v), "+x"(term.v));
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = fmadd(sums[i], factor, term);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = add(sums[0], sums[i]);
  return reduce_add(sums[0]);
}

}  // namespace

const ProbeKernel kProbeKernel = {read, multiply_add, kChains* kWidth * 2};

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
