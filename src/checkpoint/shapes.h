#pragma once

#include <span>
#include <string_view>

namespace minisgl {

/// A file of benchmarks/shapes, as it was when the program was built.
struct NamedShape {
  std::string_view name;
  std::string_view config_json;
};

/// In alphabetical order of their names.
std::span<const NamedShape> named_shapes();

}  // namespace minisgl
