#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace minisgl {

/// Learns how long outputs are: a mean over the requests that ended by themselves, in which recent ones weigh more. Before the first has
/// ended it expects the longest.
class OutputLengthEstimate {
 public:
  void observe(int64_t output_tokens) {
    const auto tokens = static_cast<double>(output_tokens);
    mean_ = mean_ ? *mean_ + kWeight * (tokens - *mean_) : tokens;
  }
  /// Output that a request of at most `max_tokens` will come to, which has `output_tokens` now; it is always expected to go on for
  /// `floor_tokens` more.
  int64_t expected(int64_t output_tokens, int64_t max_tokens, int64_t floor_tokens) const {
    const int64_t mean = mean_ ? static_cast<int64_t>(std::ceil(*mean_)) : max_tokens;
    return std::min(max_tokens, std::max(mean, output_tokens + floor_tokens));
  }

 private:
  static constexpr double kWeight = 1.0 / 16;
  std::optional<double> mean_;
};

}  // namespace minisgl
