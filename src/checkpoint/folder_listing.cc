#include "checkpoint/folder_listing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace minisgl {

namespace fs = std::filesystem;

namespace {

constexpr size_t kListed = 5;
constexpr size_t kNearest = 3;

std::vector<std::string> entries_of(const fs::path& folder, std::error_code& error) {
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Levenshtein distance.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

bool exists_or_dangles(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  // A name that may not be looked up counts as there: the attempt to open it reports the system's reason.
  return status.type() != fs::file_type::not_found;
}

std::string describe_folder(const fs::path& folder) {
  std::error_code error;
  const std::vector<std::string> names = entries_of(folder, error);
  if (error) return fmt::format("it cannot be listed ({})", error.message());
  if (names.empty()) return "it is empty";
  const size_t shown = std::min(names.size(), kListed);
  const std::string list = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return names.size() == shown ? "it holds " + list : fmt::format("it holds {} and {} more", list, names.size() - shown);
}

std::string describe_nearest(const fs::path& folder, const std::string& name) {
  std::error_code error;
  std::vector<std::pair<size_t, std::string>> ranked;
  for (std::string& entry : entries_of(folder, error)) {
    const size_t distance = edit_distance(name, entry);
    if (distance <= std::max<size_t>(2, name.size() / 3)) ranked.emplace_back(distance, std::move(entry));
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.empty()) return describe_folder(folder);
  std::string text;
  for (size_t i = 0; i < std::min(ranked.size(), kNearest); ++i) text += (i == 0 ? "" : " or ") + (folder / ranked[i].second).string();
  return "did you mean " + text + "?";
}

}  // namespace minisgl
