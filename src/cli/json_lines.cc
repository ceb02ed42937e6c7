#include "cli/json_lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"

namespace minisgl::cli {

namespace {
constexpr std::streamsize kMaxLineBytes = 64 << 20;
}  // namespace

void read_json_lines(const std::string& path, const std::string& flag,
                     const std::function<void(int64_t, const nlohmann::ordered_json&)>& on_object,
                     const std::function<void(int64_t, const GenerateResult::Failure&)>& on_failure) {
  errno = 0;
  std::ifstream file(path);
  const int open_error = errno;
  if (!file) fail_param(ErrorKind::kIo, flag, "--{} {}: {}", flag, path, std::strerror(open_error));
  // One buffer of the longest line allowed; only what lines need of it becomes resident. A file without line ends (/dev/zero) stops here.
  const auto buffer = std::make_unique_for_overwrite<char[]>(kMaxLineBytes);
  int64_t number = 0;
  while (file.getline(buffer.get(), kMaxLineBytes)) {
    ++number;
    // The count includes the line end, which a last line may lack.
    const std::string_view line(buffer.get(), static_cast<size_t>(file.gcount()) - (file.eof() ? 0 : 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      on_object(number, parse_ordered_json(line, "it"));
    } catch (const Error& error) {
      on_failure(number, {error_kind_name(error.kind()), fmt::format("line {}: {}", number, error.what()), error.param()});
    }
  }
  if (file.gcount() == kMaxLineBytes - 1) {
    fail_param(ErrorKind::kIo, flag, "--{} {}: line {} is longer than {} bytes", flag, path, number + 1, kMaxLineBytes - 1);
  }
  // A folder opens, but cannot be read.
  if (!file.eof()) fail_param(ErrorKind::kIo, flag, "--{} {} cannot be read: is it a folder?", flag, path);
}

}  // namespace minisgl::cli
