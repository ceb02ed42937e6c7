#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace minisgl::cli {

/// One figure of a benchmark: the common schema of benchmarks/schema.md.
struct BenchRecord {
  std::string what;  ///< "latency.decode"
  std::string model;
  std::string device;
  std::string dtype;
  nlohmann::ordered_json flags;   ///< what else defines the run
  nlohmann::ordered_json probes;  ///< limits of the hardware measured in the same run, by name with unit: "read_gbps"
  std::string unit;               ///< of the samples, such as "tokens/s"
  std::vector<double> samples;    ///< one per run, in order
  double limit = 0;               ///< the same quantity at the hardware's limit; 0: none

  double median() const;
  /// (maximum - minimum) / median.
  double spread() const;
  /// median() as a share of the limit; 0 without a limit.
  double share() const { return limit > 0 ? median() / limit : 0; }
  nlohmann::ordered_json to_json() const;
  /// One line for people.
  std::string to_text() const;
};

}  // namespace minisgl::cli
