#pragma once

#include <nlohmann/json_fwd.hpp>

namespace minisgl::cli {

/// Prints an object of objects for people: each section's name, then its fields, one a line.
void print_sections(const nlohmann::ordered_json& sections);

}  // namespace minisgl::cli
