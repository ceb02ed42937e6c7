#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "minisgl/llm.h"

namespace minisgl::cli {

/// Calls `on_object(line, object)` for each line of a JSONL file, lines counted from 1, blank ones skipped. A line that is not JSON, or
/// for which `on_object` throws minisgl::Error, goes to `on_failure` with a message that begins with its number; the others are not
/// affected. Throws Error(kIo) that names `flag` if the file cannot be read.
void read_json_lines(const std::string& path, const std::string& flag,
                     const std::function<void(int64_t line, const nlohmann::ordered_json& object)>& on_object,
                     const std::function<void(int64_t line, const GenerateResult::Failure& failure)>& on_failure);

}  // namespace minisgl::cli
