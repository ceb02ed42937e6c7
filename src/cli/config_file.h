#pragma once

#include <map>
#include <string>
#include <vector>

namespace minisgl::cli {

/// The keys of a TOML file and their values as text, as a command line would spell them: 64, 0.5, true, a string without its quotes; an
/// array has several. Throws Error(kUsage) with file and line for what is not TOML, a table, or a date.
std::map<std::string, std::vector<std::string>, std::less<>> read_config_file(const std::string& path);

}  // namespace minisgl::cli
