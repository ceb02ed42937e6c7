#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace minisgl {

enum class LogFormat { kText, kJson };

/// Sends every log line to stderr, with `level` one of trace, debug, info, warning, error, off, as text or as one JSON object per line.
/// Throws Error(kUsage) for another level. Log with spdlog::info("loaded {} tensors", n) and its siblings.
void configure_logging(std::string_view level, LogFormat format);

}  // namespace minisgl
