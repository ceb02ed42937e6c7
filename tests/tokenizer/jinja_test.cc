#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tokenizer/chat_template.h"

namespace minisgl {
namespace {

using Json = nlohmann::ordered_json;

/// Templates of tests/data/jinja with what Python's jinja2 makes of them (tests/tools/make_jinja_cases.py), one file per subject.
class JinjaCases : public ::testing::TestWithParam<const char*> {};

TEST_P(JinjaCases, RenderAsJinja2Does) {
  std::ifstream in(std::filesystem::path(MINISGL_TEST_DATA) / "jinja" / (std::string(GetParam()) + ".json"));
  ASSERT_TRUE(in);
  Json file = Json::parse(in);
  ASSERT_GT(file.at("cases").size(), 20u);
  ChatInputs inputs;
  inputs.messages = file.at("variables").at("messages");
  inputs.tools = file.at("variables").at("tools");
  inputs.extra = file.at("variables");
  inputs.now.emplace();
  inputs.now->tm_year = 126;
  inputs.now->tm_mday = 15;
  inputs.now->tm_hour = 12;
  inputs.now->tm_wday = 4;
  inputs.now->tm_yday = 14;
  for (const Json& expected : file.at("cases")) {
    auto source = expected.at("template").get<std::string>();
    try {
      std::string text = ChatTemplate(source).render(inputs);
      if (expected.contains("error")) {
        ADD_FAILURE() << source << "\nis refused by jinja2, but gave: " << text;
      } else {
        EXPECT_EQ(text, expected.at("text").get<std::string>()) << source;
      }
    } catch (const Error& error) {
      EXPECT_TRUE(expected.contains("error")) << source << "\n" << error.what();
      EXPECT_TRUE(error.kind() == ErrorKind::kInvalidRequest || error.kind() == ErrorKind::kBadModel) << source << "\n" << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, JinjaCases,
                         ::testing::Values("literals", "operators", "access", "methods", "filters_text", "filters_numbers", "filters_lists",
                                           "tojson", "printing", "tests", "functions", "control", "scopes", "whitespace"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace minisgl
