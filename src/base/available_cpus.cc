#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/compute_pool.h"

namespace minisgl {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// CPUs granted by one folder of a control group hierarchy.
double quota_of_folder(const std::filesystem::path& folder) {
  std::string quota;
  double period_us = 0;
  std::ifstream v2(folder / "cpu.max");
  if (v2 >> quota >> period_us) {
    if (quota == "max" || period_us <= 0) return kUnlimited;
    const double quota_us = std::strtod(quota.c_str(), nullptr);
    return quota_us > 0 ? quota_us / period_us : kUnlimited;
  }
  double quota_us = 0;
  std::ifstream v1_quota(folder / "cpu.cfs_quota_us");
  std::ifstream v1_period(folder / "cpu.cfs_period_us");
  if (v1_quota >> quota_us && v1_period >> period_us && quota_us > 0 && period_us > 0) return quota_us / period_us;
  return kUnlimited;
}

/// The smallest quota of `group` and its ancestors below `hierarchy`. Inside a container `group` may be a path of the host that is not
/// visible; its ancestors up to `hierarchy` itself, the container's own group, are looked at all the same.
double quota_of_group(const std::filesystem::path& hierarchy, std::filesystem::path group) {
  double cpus = kUnlimited;
  group = group.relative_path();
  while (true) {
    cpus = std::min(cpus, quota_of_folder(hierarchy / group));
    if (group.empty()) return cpus;
    group = group.parent_path();
  }
}

int affinity_cpus() {
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

double cgroup_cpu_quota(const std::string& membership_file, const std::string& mount) {
  // Lines are "id:controllers:path"; version 2 has no controllers.
  double cpus = kUnlimited;
  std::ifstream membership(membership_file);
  for (std::string line; std::getline(membership, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      cpus = std::min(cpus, quota_of_group(mount, group));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      cpus = std::min(cpus, quota_of_group(std::filesystem::path(mount) / controllers, group));
    }
  }
  return cpus;
}

int available_cpus() {
  const double quota = std::floor(cgroup_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
  return static_cast<int>(std::clamp(quota, 1.0, static_cast<double>(affinity_cpus())));
}

}  // namespace minisgl
