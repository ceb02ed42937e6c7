#include "ops/cpu/isa.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace minisgl::cpu {

namespace {

constexpr Isa kBestFirst[] = {Isa::kAvx512, Isa::kAvx2, Isa::kPortable};

std::string available_names() {
  std::string names;
  for (const Isa isa : kBestFirst) {
    if (isa_available(isa)) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  return names;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
#if defined(__x86_64__)
    // The compiler's check covers the operating system's part (XCR0) as well.
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    case Isa::kAvx512:
      return isa_available(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    default:
      return false;
#endif
  }
  return false;
}

Isa select_isa() {
  const char* wanted = std::getenv("MINISGL_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    for (const Isa isa : kBestFirst) {
      if (isa_available(isa)) return isa;
    }
  }
  for (const Isa isa : kBestFirst) {
    if (std::string_view(wanted) != isa_name(isa)) continue;
    if (!isa_available(isa)) {
      fail(ErrorKind::kUsage, "MINISGL_CPU_ISA is {}, which this CPU or build lacks; available: {}", wanted, available_names());
    }
    return isa;
  }
  fail(ErrorKind::kUsage, "MINISGL_CPU_ISA is \"{}\", which is no instruction set; available: {}", wanted, available_names());
}

}  // namespace minisgl::cpu
