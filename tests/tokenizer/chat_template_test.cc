#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Json read_json(const fs::path& path) { return Json::parse(read_file(path)); }

/// 2026-01-15 12:00:00, a Thursday.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 0;
  time.tm_mday = 15;
  time.tm_hour = 12;
  time.tm_wday = 4;
  time.tm_yday = 14;
  return time;
}

/// The inputs of one conversation of a golden file: its `messages`, and `tools`, `add_generation_prompt` and `kwargs` if it has them.
ChatInputs inputs_of(const Json& chat) {
  ChatInputs inputs;
  inputs.messages = chat.at("messages");
  inputs.tools = chat.value("tools", Json());
  inputs.add_generation_prompt = chat.value("add_generation_prompt", true);
  inputs.extra = chat.value("kwargs", Json());
  inputs.now = fixed_time();
  return inputs;
}

ChatInputs one_message(const std::string& content = "Hi") {
  ChatInputs inputs;
  inputs.messages = Json::array({Json{{"role", "user"}, {"content", content}}});
  inputs.now = fixed_time();
  return inputs;
}

/// What rendering throws, or an empty message.
Error render_error(const std::string& source, const ChatInputs& inputs = one_message(), ChatLimits limits = {}) {
  try {
    ChatTemplate(source, limits).render(inputs);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kInternal, "");
}

const char* corpus() { return std::getenv("MINISGL_TEST_CORPUS"); }

TEST(ChatTemplate, RendersRealTemplatesAsJinja2Does) {
  if (!corpus()) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  fs::path folder = fs::path(corpus()) / "chat_templates";
  Json golden = read_json(folder / "expected.json");
  int texts = 0, refusals = 0;
  for (const auto& [name, conversations] : golden.at("expected").items()) {
    std::optional<ChatTemplate> chat_template;
    ASSERT_NO_THROW(chat_template.emplace(read_file(folder / (name + ".jinja")))) << name;
    for (const auto& [conversation, expected] : conversations.items()) {
      ChatInputs inputs = inputs_of(golden.at("conversations").at(conversation));
      inputs.bos_token = "<s>";
      inputs.eos_token = "</s>";
      SCOPED_TRACE(name + " " + conversation);
      if (expected.contains("error")) {
        EXPECT_THROW(chat_template->render(inputs), Error);
        ++refusals;
      } else {
        EXPECT_NO_THROW(EXPECT_EQ(chat_template->render(inputs), expected.at("text").get<std::string>()));
        ++texts;
      }
    }
  }
  EXPECT_EQ(texts, 124);
  EXPECT_EQ(refusals, 20);
}

}  // namespace
}  // namespace minisgl
