#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/error.h"

namespace minisgl {

/// Bounds of JSON from outside: code that walks a value may recurse, and an ordered object finds a key by looking at all of them.
inline constexpr int kMaxJsonDepth = 100;
inline constexpr int kMaxJsonKeys = 4096;

/// Parses JSON that a user or client wrote, keeping the order of keys. Throws Error(`kind`), one line that begins with `what`, for
/// malformed text, a number out of range, nesting of more than kMaxJsonDepth, or an object of more than kMaxJsonKeys keys.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view what, ErrorKind kind = ErrorKind::kInvalidRequest);

}  // namespace minisgl
