#include "llm/load_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "engine/memory_plan.h"

namespace minisgl {

LoadReporter::LoadReporter(std::string model)
    : model_(std::move(model)),
      start_(std::chrono::steady_clock::now()),
      show_bar_(isatty(STDERR_FILENO) == 1 && spdlog::default_logger()->should_log(spdlog::level::info)) {}

LoadReporter::~LoadReporter() {
  clear_bar();
}

void LoadReporter::update(int64_t done_bytes, int64_t total_bytes) {
  done_bytes_ = done_bytes;
  if (!show_bar_ || total_bytes <= 0) return;
  const int percent = static_cast<int>(static_cast<double>(done_bytes) * 100 / static_cast<double>(total_bytes));
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  constexpr int kWidth = 40;
  const int filled = std::clamp(percent * kWidth / 100, 0, kWidth);
  const std::string bar = std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kWidth - filled), '.');
  std::fprintf(stderr, "\rloading [%s] %3d %%", bar.c_str(), percent);
  std::fflush(stderr);
}

void LoadReporter::clear_bar() {
  if (shown_percent_ < 0) return;
  std::fputs("\r\033[K", stderr);
  shown_percent_ = -1;
}

void LoadReporter::finish() {
  clear_bar();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  spdlog::info("loaded {} in {:.2f} s: {}, {:.2f} GB/s", model_, seconds, format_bytes(static_cast<size_t>(done_bytes_)),
               static_cast<double>(done_bytes_) / 1e9 / std::max(seconds, 1e-9));
}

}  // namespace minisgl
