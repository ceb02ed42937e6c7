#pragma once

#include <string>
#include <string_view>

namespace minisgl::cli {

/// Thrown when the reader of stdout has gone away (`minisgl ... | head -1`): the program ends quietly.
struct ClosedPipe {};

/// Writes to stdout. Throws Error(kIo) if the device is full or fails, ClosedPipe if nobody reads any more.
void write_stdout(std::string_view text);
/// A message with its line ends written as \\n: an error is one line, whatever a template or a file put into it. Cut after
/// 2,000 bytes.
std::string one_line(std::string_view message);
/// Hands everything written so far to the system; throws as write_stdout().
void flush_stdout();

}  // namespace minisgl::cli
