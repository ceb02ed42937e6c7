#include "cli/json_lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace minisgl::cli {

void read_json_lines(const std::string& path, const std::string& flag,
                     const std::function<void(int64_t, const nlohmann::ordered_json&)>& on_object,
                     const std::function<void(int64_t, const GenerateResult::Failure&)>& on_failure) {
  errno = 0;
  std::ifstream file(path);
  std::string line;
  int64_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      on_object(number, nlohmann::ordered_json::parse(line));
    } catch (const nlohmann::ordered_json::exception& error) {
      on_failure(number, {error_kind_name(ErrorKind::kInvalidRequest), fmt::format("line {}: not JSON: {}", number, error.what()), ""});
    } catch (const Error& error) {
      on_failure(number, {error_kind_name(error.kind()), fmt::format("line {}: {}", number, error.what()), error.param()});
    }
  }
  // A folder opens, but reading it fails; so does a file that cannot be opened at all.
  if (!file.eof() || errno != 0) {
    fail_param(ErrorKind::kIo, flag, "--{} {}: {}", flag, path, errno != 0 ? std::strerror(errno) : "cannot be read");
  }
}

}  // namespace minisgl::cli
