#include "engine/memory_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace minisgl {

namespace {

namespace fs = std::filesystem;

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
constexpr int64_t kDefaultPageSize = 16;
constexpr int64_t kDefaultSequences = 8;

std::optional<size_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // absent, or the word "max"
  return value;
}

/// The value of `key` in a file of lines "key value" (memory.stat) or "key: value kB" (/proc/meminfo).
std::optional<size_t> read_field(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  uint64_t value = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) == 0 && line.size() > key.size()) {
      const std::string rest = line.substr(key.size());
      if (std::sscanf(rest.c_str(), " %lu", &value) == 1) return value;
    }
  }
  return std::nullopt;
}

/// What a memory limit leaves: files cached on behalf of the group can be dropped, so they count as free.
size_t left_of(size_t limit, size_t used, size_t cached) {
  const size_t firm = used - std::min(used, cached);
  return limit - std::min(limit, firm);
}

/// The tightest limit among a cgroup and its ancestors up to `root`.
size_t cgroup_available(const fs::path& root, fs::path group, const char* limit_file, const char* used_file, const char* cached_prefix) {
  size_t available = kUnlimited;
  while (true) {
    const fs::path folder = root / group.relative_path();
    const auto limit = read_number(folder / limit_file);
    const auto used = read_number(folder / used_file);
    if (limit && used) {
      size_t cached = 0;
      for (const char* kind : {"active_file", "inactive_file"}) {
        cached += read_field(folder / "memory.stat", fmt::format("{}{} ", cached_prefix, kind)).value_or(0);
      }
      available = std::min(available, left_of(*limit, *used, cached));
    }
    if (!group.has_relative_path()) return available;
    group = group.parent_path();
  }
}

int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

size_t available_memory_bytes() {
  size_t available = kUnlimited;
  if (const auto kib = read_field("/proc/meminfo", "MemAvailable:")) available = *kib * 1024;

  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" (version 2) or "4:memory:/path" (version 1).
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      available = std::min(available, cgroup_available("/sys/fs/cgroup", group, "memory.max", "memory.current", ""));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      available =
          std::min(available, cgroup_available("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"));
    }
  }
  if (available == kUnlimited) available = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return available;
}

std::string format_bytes(size_t bytes) {
  constexpr double kMib = 1024.0 * 1024.0;
  const double value = static_cast<double>(bytes);
  return value >= 1024 * kMib ? fmt::format("{:.1f} GiB", value / (1024 * kMib)) : fmt::format("{:.1f} MiB", value / kMib);
}

void check_weights_fit(size_t weight_bytes, size_t available_bytes, const std::string& model, DType dtype) {
  if (weight_bytes <= available_bytes) return;
  fail(ErrorKind::kOutOfMemory, "the weights of {} take {} in {}, but only {} of memory are available: use a smaller model{}", model,
       format_bytes(weight_bytes), dtype_name(dtype), format_bytes(available_bytes),
       dtype == DType::kFloat32 ? " or --dtype bfloat16" : "");
}

namespace {

/// What one choice of L leaves for KV.
class PoolSizing {
 public:
  PoolSizing(const EngineConfig& config, const CacheGroup& group, size_t available_bytes, size_t taken_bytes)
      : config_(config),
        page_size_(group.page_size),
        page_bytes_(static_cast<double>(group.page_bytes())),
        fits_(taken_bytes <= available_bytes),
        free_bytes_(static_cast<double>(available_bytes - std::min(available_bytes, taken_bytes))) {}

  /// Whether weights and workspaces leave anything at all.
  bool fits() const { return fits_; }
  double bytes_for_kv() const { return config_.memory_ratio * free_bytes_; }
  int64_t pages_that_fit() const { return pages_of(bytes_for_kv()); }
  int64_t default_pages(int64_t max_model_len) const {
    return std::min({kDefaultSequences * ceil_div(max_model_len, page_size_), pages_that_fit(), pages_of(free_bytes_ / 4)});
  }
  /// Whether a pool can be had that holds one sequence of L.
  bool holds(int64_t max_model_len) const {
    if (!fits_) return false;
    if (config_.num_pages && *config_.num_pages > pages_that_fit()) return false;
    return config_.num_pages.value_or(default_pages(max_model_len)) * page_size_ >= max_model_len;
  }

 private:
  int64_t pages_of(double bytes) const {
    const int64_t most_pages = std::numeric_limits<int32_t>::max() / page_size_ - 1;  // slots are int32
    const double pages = bytes / page_bytes_ - 1;                                     // the dummy page
    return static_cast<int64_t>(std::clamp(pages, 0.0, static_cast<double>(most_pages)));
  }

  const EngineConfig& config_;
  int64_t page_size_;
  double page_bytes_;
  bool fits_;
  double free_bytes_;
};

/// The largest L in [1, most] for which allowed(L) holds, which must not come true again once it is false; 1 if there is none.
template <typename Allowed>
int64_t largest_model_len(int64_t most, const Allowed& allowed) {
  int64_t low = 1;
  while (low < most) {
    const int64_t middle = low + (most - low + 1) / 2;
    if (allowed(middle)) {
      low = middle;
    } else {
      most = middle - 1;
    }
  }
  return low;
}

}  // namespace

MemoryPlan plan_memory(const EngineConfig& config, const ModelConfig& model, const CacheGroup& group, size_t available_bytes,
                       size_t weight_bytes, const WorkspaceBytes& workspace_bytes) {
  const auto sizing_for = [&](int64_t max_model_len) {
    return PoolSizing(config, group, available_bytes, weight_bytes + workspace_bytes(max_model_len));
  };
  MemoryPlan plan;
  plan.available_bytes = available_bytes;
  plan.weight_bytes = weight_bytes;
  plan.page_size = group.page_size;
  plan.page_bytes = group.page_bytes();
  plan.max_running_requests = config.max_running_requests;
  if (config.max_model_len) {
    plan.max_model_len = *config.max_model_len;
    if (!sizing_for(plan.max_model_len).fits()) {
      const int64_t most = largest_model_len(plan.max_model_len, [&](int64_t length) { return sizing_for(length).fits(); });
      fail_param(ErrorKind::kOutOfMemory, "max-model-len",
                 "--max-model-len {} needs {} of workspaces and tables, but {} of {} are left after weights ({}): at most {}",
                 plan.max_model_len, format_bytes(workspace_bytes(plan.max_model_len)),
                 format_bytes(available_bytes - std::min(available_bytes, weight_bytes)), format_bytes(available_bytes),
                 format_bytes(weight_bytes), most);
    }
    if (plan.max_model_len > model.max_position_embeddings) {
      spdlog::warn("--max-model-len {} is longer than the {} positions the model was made for: quality may suffer beyond them",
                   plan.max_model_len, model.max_position_embeddings);
    }
  } else {
    plan.max_model_len = largest_model_len(model.max_position_embeddings, [&](int64_t length) { return sizing_for(length).holds(length); });
  }
  plan.workspace_bytes = workspace_bytes(plan.max_model_len);

  const PoolSizing sizing = sizing_for(plan.max_model_len);
  plan.num_pages = config.num_pages.value_or(sizing.default_pages(plan.max_model_len));
  if (config.num_pages && plan.num_pages > sizing.pages_that_fit()) {
    fail_param(
        ErrorKind::kOutOfMemory, "num-pages",
        "--num-pages {} needs {} for KV, but {} of {} are left after weights ({}) and workspaces ({}) at --memory-ratio {}: at most {}",
        plan.num_pages, format_bytes(static_cast<size_t>(plan.num_pages) * plan.page_bytes),
        format_bytes(static_cast<size_t>(sizing.bytes_for_kv())), format_bytes(available_bytes), format_bytes(weight_bytes),
        format_bytes(plan.workspace_bytes), config.memory_ratio, sizing.pages_that_fit());
  }
  if (plan.num_pages < 1) {
    fail(ErrorKind::kOutOfMemory, "no memory is left for KV: {} available, weights take {}, workspaces {}, one page of {} tokens {}",
         format_bytes(available_bytes), format_bytes(weight_bytes), format_bytes(plan.workspace_bytes), plan.page_size,
         format_bytes(plan.page_bytes));
  }
  plan.kv_tokens = plan.num_pages * plan.page_size;
  plan.kv_bytes = (static_cast<size_t>(plan.num_pages) + 1) * plan.page_bytes;
  if (!config.max_model_len && plan.max_model_len < model.max_position_embeddings) {
    spdlog::warn(
        "the longest sequence is {} tokens instead of the model's {}: the KV pool has {} pages of {} tokens ({}), workspaces take {}",
        plan.max_model_len, model.max_position_embeddings, plan.num_pages, plan.page_size, format_bytes(plan.kv_bytes),
        format_bytes(plan.workspace_bytes));
  }
  plan.max_step_tokens = max_step_tokens(config, plan.max_model_len);
  return plan;
}

int64_t max_step_tokens(const EngineConfig& config, int64_t max_model_len) {
  const int64_t budget = std::min(config.max_prefill_tokens, kMaxCpuStepTokens);
  // Few short sequences may not fill the budget; the division keeps the product from overflowing.
  const int64_t all_tokens =
      max_model_len <= budget / config.max_running_requests ? max_model_len * config.max_running_requests : budget;
  return std::max(std::min(budget, all_tokens), config.max_running_requests);
}

int64_t resolve_page_size(const EngineConfig& config) {
  return config.page_size.value_or(kDefaultPageSize);
}

}  // namespace minisgl
