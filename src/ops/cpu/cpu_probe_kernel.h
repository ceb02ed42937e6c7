#pragma once

#include <stdint.h>

// The loops of cpu_probe.cc for one instruction set. Plain data only: this header is compiled with every set's flags (see simd.h).

namespace minisgl::cpu {

struct ProbeKernel {
  /// Reads `bytes` (a multiple of 1024) from `data`; the result depends on all of them.
  uint32_t (*read)(const void* data, int64_t bytes);
  /// `steps` steps of independent multiply-adds on registers; returns a value that depends on all of them.
  float (*multiply_add)(int64_t steps);
  /// Floating-point operations of one step.
  int64_t step_operations;
};

namespace portable {
extern const ProbeKernel kProbeKernel;
}
namespace avx2 {
extern const ProbeKernel kProbeKernel;
}
namespace avx512 {
extern const ProbeKernel kProbeKernel;
}

}  // namespace minisgl::cpu
