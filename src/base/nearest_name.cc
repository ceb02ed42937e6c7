#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace minisgl {

namespace {

/// Levenshtein distance, one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& candidates, size_t limit) {
  std::vector<std::pair<size_t, size_t>> ranked;  // distance, place among the candidates
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t distance = edit_distance(name, candidates[i]);
    if (distance <= name.size() / 3 + 1) ranked.emplace_back(distance, i);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), limit));
  std::vector<std::string> nearest;
  nearest.reserve(ranked.size());
  for (const auto& [distance, i] : ranked) nearest.push_back(candidates[i]);
  return nearest;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::vector<std::string> nearest = nearest_names(name, candidates, 1);
  return nearest.empty() ? "" : nearest[0];
}

}  // namespace minisgl
