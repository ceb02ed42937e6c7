#include "cli/config_file.h"

#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace minisgl::cli {

namespace {

/// The text of a scalar; throws for anything else.
std::string scalar_text(const toml::node& node, const std::string& path, std::string_view key) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  fail_param(ErrorKind::kUsage, std::string(key),
             "{}:{}: '{}' must be a string, a number, true, false or an array of these; flags stand at the top level", path,
             node.source().begin.line, key);
}

}  // namespace

std::map<std::string, std::vector<std::string>, std::less<>> read_config_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) fail_param(ErrorKind::kUsage, "config", "--config {}: {}", path, std::strerror(errno));
  toml::table table;
  try {
    table = toml::parse(file, path);
  } catch (const toml::parse_error& error) {
    fail_param(ErrorKind::kUsage, "config", "{}:{}: {}", path, error.source().begin.line, error.description());
  }
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  for (const auto& [key, node] : table) {
    std::vector<std::string>& texts = values[std::string(key.str())];
    if (const toml::array* array = node.as_array()) {
      for (const toml::node& element : *array) texts.push_back(scalar_text(element, path, key.str()));
    } else {
      texts.push_back(scalar_text(node, path, key.str()));
    }
  }
  return values;
}

}  // namespace minisgl::cli
