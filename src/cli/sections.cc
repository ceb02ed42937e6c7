#include "cli/sections.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/output.h"

namespace minisgl::cli {

void print_sections(const nlohmann::ordered_json& sections) {
  for (const auto& [section, fields] : sections.items()) {
    write_stdout(section + "\n");
    for (const auto& [key, value] : fields.items()) {
      write_stdout(fmt::format("  {:<24} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
}

}  // namespace minisgl::cli
