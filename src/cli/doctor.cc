#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/compute_pool.h"
#include "cli/commands.h"
#include "cli/commit.h"
#include "cli/output.h"
#include "cli/sections.h"
#include "ops/cpu/isa.h"
#include "tensor/device.h"

namespace minisgl::cli {

namespace {

using Json = nlohmann::ordered_json;

/// The value of the first line "key : value" of a /proc file; empty if there is none.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string instruction_sets() {
  std::string text;
  for (const cpu::Isa isa : {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (cpu::isa_available(isa)) text += (text.empty() ? "" : ", ") + std::string(cpu::isa_name(isa));
  }
  return text;
}

/// Whether a library that CUDA devices need can be opened, and what provides it otherwise.
std::string library_state(const char* library, const char* provider) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return fmt::format("not found: {} comes with {}", library, provider);
  dlclose(handle);
  return "found";
}

std::string kernel() {
  utsname name = {};
  return uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "unknown";
}

Json report() {
  Json sections;
  sections["hardware"] = {
      {"cpu", proc_value("/proc/cpuinfo", "model name")},
      {"cpus_of_this_process", available_cpus()},
      {"cpus_online", sysconf(_SC_NPROCESSORS_ONLN)},
      {"instruction_sets", instruction_sets()},
      {"instruction_set_in_use", cpu::isa_name(cpu::select_isa())},
      {"memory_total", proc_value("/proc/meminfo", "MemTotal")},
      {"memory_available", proc_value("/proc/meminfo", "MemAvailable")},
      {"transparent_huge_pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
  };
  sections["system"] = {{"kernel", kernel()}};
  sections["cuda"] = {
      {"driver", library_state("libcuda.so.1", "the NVIDIA driver")},
      {"devices", cuda_device_count()},
      {"engine", "in development: --device cpu only"},
  };
  sections["build"] = {
      {"version", MINISGL_VERSION},     {"commit", kCommit}, {"compiler", MINISGL_COMPILER}, {"type", MINISGL_BUILD_TYPE},
      {"libraries", MINISGL_LIBRARIES},
  };
  return sections;
}

}  // namespace

int run_doctor(const Flags& flags) {
  const Json sections = report();
  if (flags.get_bool("json")) {
    write_stdout(sections.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return 0;
  }
  print_sections(sections);
  return 0;
}

}  // namespace minisgl::cli
