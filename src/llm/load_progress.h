#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace minisgl {

/// Tells the user how the loading of weights goes: a bar on stderr if that is a terminal and logs are shown, and one log line with the rate
/// at the end.
class LoadReporter {
 public:
  explicit LoadReporter(std::string model);
  ~LoadReporter();
  LoadReporter(const LoadReporter&) = delete;
  LoadReporter& operator=(const LoadReporter&) = delete;

  void update(int64_t done_bytes, int64_t total_bytes);
  /// Ends the bar and writes the log line.
  void finish();

 private:
  void clear_bar();

  std::string model_;
  std::chrono::steady_clock::time_point start_;
  int64_t done_bytes_ = 0;
  int shown_percent_ = -1;
  bool show_bar_;
};

}  // namespace minisgl
