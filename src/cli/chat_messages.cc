#include "cli/chat_messages.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace minisgl::cli {

using Json = nlohmann::ordered_json;

std::string chat_messages(const std::string& system, std::span<const ChatTurn> turns) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  for (const ChatTurn& turn : turns) {
    messages.push_back({{"role", "user"}, {"content", turn.user}});
    if (turn.answer.has_value()) messages.push_back({{"role", "assistant"}, {"content", *turn.answer}});
  }
  try {
    return messages.dump();
  } catch (const Json::type_error&) {
    fail_param(ErrorKind::kInvalidRequest, "messages", "a message is not valid UTF-8");
  }
}

}  // namespace minisgl::cli
