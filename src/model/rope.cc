#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace minisgl {

namespace {

/// Rows of the table computed at once: about a millisecond.
constexpr int64_t kBlockRows = 512;

/// theta^(2i / D), the period of pair i over 2 pi.
std::vector<float> base_periods(double theta, int64_t head_dim) {
  std::vector<float> periods(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < periods.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    periods[i] = std::pow(static_cast<float>(theta), exponent);
  }
  return periods;
}

/// Long wavelengths are divided by the factor, short ones kept, those between blended.
float llama3_frequency(const RopeConfig& rope, float frequency) {
  const auto context = static_cast<double>(rope.original_max_position);
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  // At equality the blend below gives the frequency itself; deciding it here keeps equal borders from dividing by zero.
  if (wavelength <= static_cast<float>(context / rope.high_freq_factor)) return frequency;
  if (wavelength > static_cast<float>(context / rope.low_freq_factor)) return frequency / factor;
  const float smooth = (static_cast<float>(context) / wavelength - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

/// The (fractional) pair that turns `rotations` times within the original context, times two.
double yarn_dimension(const RopeConfig& rope, double rotations, int64_t head_dim) {
  return static_cast<double>(head_dim) * std::log(static_cast<double>(rope.original_max_position) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

/// Pairs below the ramp extrapolate (keep their frequency), pairs above interpolate (divide it by the factor).
std::vector<float> yarn_frequencies(const RopeConfig& rope, int64_t head_dim) {
  double low = yarn_dimension(rope, rope.beta_fast, head_dim);
  double high = yarn_dimension(rope, rope.beta_slow, head_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;

  std::vector<float> frequencies = base_periods(rope.theta, head_dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float period = frequencies[i];
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1 - ramp;
    const float interpolated = 1 / (static_cast<float>(rope.factor) * period);
    frequencies[i] = interpolated * (1 - keep) + (1 / period) * keep;
  }
  return frequencies;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  MINISGL_CHECK(head_dim > 0 && head_dim % 2 == 0, "head_dim {}", head_dim);
  if (rope.kind == RopeKind::kYarn) return yarn_frequencies(rope, head_dim);
  std::vector<float> frequencies = base_periods(rope.theta, head_dim);
  for (float& frequency : frequencies) {
    frequency = 1 / frequency;
    if (rope.kind == RopeKind::kLinear) frequency /= static_cast<float>(rope.factor);
    if (rope.kind == RopeKind::kLlama3) frequency = llama3_frequency(rope, frequency);
  }
  return frequencies;
}

RopeTable::RopeTable(const RopeConfig& rope, int64_t head_dim, int64_t max_positions)
    : frequencies_(rope_inverse_frequencies(rope, head_dim)),
      scale_(rope.kind == RopeKind::kYarn ? static_cast<float>(rope.attention_factor) : 1.0f),
      table_(DType::kFloat32, {max_positions, head_dim}) {}

void RopeTable::cover(int64_t position) {
  if (position < covered_) return;
  MINISGL_CHECK(position < table_.view().size(0), "position {} of {}", position, table_.view().size(0));
  // A block at a time, so that decoding does not come here for every token.
  const int64_t end = std::min(table_.view().size(0), (position / kBlockRows + 1) * kBlockRows);
  float* row = table_.view().data<float>() + covered_ * table_.view().size(1);
  for (; covered_ < end; ++covered_, row += 2 * frequencies_.size()) {
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const float angle = static_cast<float>(covered_) * frequencies_[i];
      row[i] = std::cos(angle) * scale_;
      row[frequencies_.size() + i] = std::sin(angle) * scale_;
    }
  }
}

}  // namespace minisgl
