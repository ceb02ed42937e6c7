#include "checkpoint/folder_listing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/nearest_name.h"

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
  const std::vector<std::string> nearest = nearest_names(name, entries_of(folder, error), kNearest);
  if (nearest.empty()) return describe_folder(folder);
  std::string text;
  for (const std::string& entry : nearest) text += (text.empty() ? "" : " or ") + (folder / entry).string();
  return "did you mean " + text + "?";
}

}  // namespace minisgl
