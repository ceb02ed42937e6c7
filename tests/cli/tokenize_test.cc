#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"

namespace minisgl::test {
namespace {

using Json = nlohmann::json;

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

const std::vector<std::string> kModel = {"--model", fixture("tiny-qwen3")};

std::vector<std::string> with_model(const std::string& command, std::vector<std::string> rest) {
  std::vector<std::string> arguments = {command, kModel[0], kModel[1]};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return arguments;
}

TEST(TokenizeTest, TextGoesToIdsAndBack) {
  const ProgramResult encoded = run_program(with_model("tokenize", {"--text", "Hello, w\xc3\xb6rld!\n"}));
  ASSERT_EQ(encoded.status, 0) << encoded.err;
  const Json line = lines_of(encoded.out).at(0);
  EXPECT_EQ(line["text"], "Hello, w\xc3\xb6rld!\n");
  std::string ids;
  for (const Json& id : line["token_ids"]) ids += (ids.empty() ? "" : ",") + id.dump();
  const ProgramResult decoded = run_program(with_model("detokenize", {"--ids", ids}));
  ASSERT_EQ(decoded.status, 0) << decoded.err;
  EXPECT_EQ(lines_of(decoded.out).at(0)["text"], line["text"]);
}

TEST(TokenizeTest, SpecialTokensAreParsedUnlessPlain) {
  const ProgramResult parsed = run_program(with_model("tokenize", {"--text", "<|im_end|>"}));
  EXPECT_EQ(lines_of(parsed.out).at(0)["token_ids"], Json({1020}));
  const ProgramResult plain = run_program(with_model("tokenize", {"--text", "<|im_end|>", "--plain-text"}));
  EXPECT_GT(lines_of(plain.out).at(0)["token_ids"].size(), 1u);
}

TEST(TokenizeTest, MessagesAreRendered) {
  const TemporaryFolder folder;
  const std::string file = folder.write("m.jsonl",
                                        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n"
                                        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":false}\n");
  const ProgramResult result = run_program(with_model("tokenize", {"--messages-file", file}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto lines = lines_of(result.out);
  EXPECT_EQ(lines.at(0)["text"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(lines.at(1)["text"], "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(TokenizeTest, ABadLineIsAnErrorLineAndTheOthersRun) {
  const TemporaryFolder folder;
  const std::string file = folder.write("t.jsonl", "{\"text\":\"a\"}\nnot json\n{\"txt\":1}\n\n{\"text\":\"b\"}\n");
  const ProgramResult result = run_program(with_model("tokenize", {"--file", file}));
  EXPECT_EQ(result.status, 1);
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 4u) << result.out;
  EXPECT_TRUE(lines[0].contains("token_ids"));
  EXPECT_EQ(lines[1]["error"].get<std::string>().rfind("line 2: it is not valid JSON", 0), 0u);
  EXPECT_EQ(lines[2]["error"].get<std::string>().rfind("line 3: ", 0), 0u);
  EXPECT_EQ(lines[3]["text"], "b");
}

TEST(TokenizeTest, ARefusalOfTheTemplateIsAnErrorLine) {
  const TemporaryFolder folder;
  const std::string file = folder.write("m.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n");
  const std::string chat_template = folder.write("t.jinja", "{{ raise_exception('only one user') }}");
  const ProgramResult result = run_program(with_model("tokenize", {"--messages-file", file, "--chat-template", chat_template}));
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(lines_of(result.out).at(0)["error"].get<std::string>().find("only one user"), std::string::npos);
}

TEST(TokenizeTest, TokenizeNeedsOnlyTheTokenizer) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file(fixture("tiny-qwen3") + "/tokenizer.json"));
  const ProgramResult result = run_program({"tokenize", "--model", folder.path().string(), "--text", "Hello"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(TokenizeTest, AnIdOutsideTheVocabularyIsRefused) {
  const ProgramResult result = run_program(with_model("detokenize", {"--ids", "1,99999"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("99999"), std::string::npos);
}

}  // namespace
}  // namespace minisgl::test
