#pragma once

#include <string_view>
#include <unordered_map>

#include "tokenizer/jinja_builtins.h"

/// The filters by subject; find_filter looks through both tables.
namespace minisgl::jinja {

using FilterTable = std::unordered_map<std::string_view, Filter>;

/// Filters of one value: text, numbers, JSON.
const FilterTable& scalar_filters();
/// Filters over the elements of a list, dict or generator.
const FilterTable& collection_filters();

}  // namespace minisgl::jinja
