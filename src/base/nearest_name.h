#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

/// For "did you mean": the candidates close to `name` by Levenshtein distance, closest first, equally close ones in their order; at most
/// `limit`. Close is a distance of at most a third of the name's bytes, and one.
std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& candidates, size_t limit);

/// The closest of them, or empty if none is close.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace minisgl
