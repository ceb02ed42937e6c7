#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace minisgl::cli {

namespace {

[[noreturn]] void fail_stdout() {
  if (errno == EPIPE) throw ClosedPipe{};
  fail(ErrorKind::kIo, "cannot write to stdout: {}", std::strerror(errno));
}

}  // namespace

void write_stdout(std::string_view text) {
  if (text.empty()) return;  // the data of an empty view may be null, which fwrite must not be given
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_stdout();
}

std::string one_line(std::string_view message) {
  constexpr size_t kMaxBytes = 2000;
  std::string line;
  for (const char c : message) {
    if (line.size() > kMaxBytes) return line + "...";
    if (c == '\n') {
      line += "\\n";
    } else if (c != '\r') {
      line += c;
    }
  }
  return line;
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) fail_stdout();
}

}  // namespace minisgl::cli
