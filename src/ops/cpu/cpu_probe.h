#pragma once

#include "base/compute_pool.h"
#include "ops/cpu/isa.h"
#include "tensor/device.h"

namespace minisgl::cpu {

/// What this machine can do at this moment, measured by loops that do nothing else: the limits that decode and prefill are printed against.
/// One call is one measurement (about 50 ms for the bandwidth, 20 ms for the rate); the machine may be shared, so callers interleave
/// several with their own runs and take the best.
class CpuProbe {
 public:
  /// Allocates and touches 512 MiB, more than any cache. Throws Error(kOutOfMemory) if that does not fit.
  CpuProbe(ComputePool& pool, Isa isa);

  /// Bytes that all members of the pool together read from memory, in 10^9 bytes per second.
  double read_bandwidth_gbps();
  /// float32 fused multiply-adds on registers by all members together (multiply, then add in portable), in 10^9 operations per second; a
  /// multiply-add counts as two.
  double fma_gflops();

 private:
  ComputePool& pool_;
  Isa isa_;
  Buffer buffer_;
};

}  // namespace minisgl::cpu
