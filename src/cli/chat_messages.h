#pragma once

#include <optional>
#include <span>
#include <string>

namespace minisgl::cli {

/// What a user said, and the answer once there is one.
struct ChatTurn {
  std::string user;
  std::optional<std::string> answer;
};

/// A conversation as the JSON list of messages that ChatPrompt takes; an empty `system` adds no system message. Throws
/// Error(kInvalidRequest) if a text is not UTF-8, which JSON cannot carry.
std::string chat_messages(const std::string& system, std::span<const ChatTurn> turns);

}  // namespace minisgl::cli
