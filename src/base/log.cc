#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace minisgl {

namespace {

/// Writes {"time":...,"level":...,"message":...} per line; the message is escaped by the JSON library, so a line stays one line.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch()).count();
    const auto level = spdlog::level::to_string_view(message.level);
    const nlohmann::json line = {{"time", static_cast<double>(since_epoch) / 1e3},
                                 {"level", std::string(level.data(), level.size())},
                                 {"message", std::string(message.payload.data(), message.payload.size())}};
    const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

void configure_logging(std::string_view level, LogFormat format) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    fail_param(ErrorKind::kUsage, "log-level", "--log-level is '{}'; allowed are trace, debug, info, warning, error, off", level);
  }
  auto logger = std::make_shared<spdlog::logger>("minisgl", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%^%l%$ %v");
  }
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace minisgl
