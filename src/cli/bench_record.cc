#include "cli/bench_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/commit.h"

namespace minisgl::cli {

double BenchRecord::median() const {
  MINISGL_CHECK(!samples.empty(), "{} has no samples", what);
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double BenchRecord::spread() const {
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
  return (*high - *low) / median();
}

nlohmann::ordered_json BenchRecord::to_json() const {
  nlohmann::ordered_json json = {{"what", what},       {"model", model},     {"device", device},  {"dtype", dtype},
                                 {"flags", flags},     {"commit", kCommit},  {"probes", probes},  {"unit", unit},
                                 {"samples", samples}, {"median", median()}, {"spread", spread()}};
  if (limit > 0) {
    json["limit"] = limit;
    json["share"] = share();
  }
  return json;
}

std::string BenchRecord::to_text() const {
  std::string text =
      fmt::format("{:<18} {:>10.2f} {:<9} median of {}, spread {:.0f} %", what, median(), unit, samples.size(), spread() * 100);
  if (limit > 0) text += fmt::format("; {:.1f} % of the limit {:.2f}", share() * 100, limit);
  return text;
}

}  // namespace minisgl::cli
