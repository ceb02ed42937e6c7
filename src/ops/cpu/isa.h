#pragma once

namespace minisgl::cpu {

/// The instruction sets that the CPU kernels are compiled for. Bits of a result may differ between them, never within one.
enum class Isa { kPortable, kAvx2, kAvx512 };

/// "portable", "avx2", "avx512".
const char* isa_name(Isa isa);

/// Whether this CPU and this build can run `isa`.
bool isa_available(Isa isa);

/// The best instruction set of this CPU, or the one that MINISGL_CPU_ISA names. Throws Error(kUsage) for another name or one that this CPU
/// lacks.
Isa select_isa();

}  // namespace minisgl::cpu
