#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"

namespace minisgl::test {
namespace {

using Json = nlohmann::json;

std::string joined(const Json& ids) {
  std::string text;
  for (const Json& id : ids) text += (text.empty() ? "" : ",") + id.dump();
  return text;
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(GenerateTest, TokensEqualTheReferenceInPromptOrder) {
  const Json expected = Json::parse(read_file(fixture("tiny-qwen3") + "/expected.json"));
  std::vector<std::string> arguments = {"generate", "--model", fixture("tiny-qwen3"), "--dtype",      "float32",
                                        "--json",   "--quiet", "--ignore-eos",        "--max-tokens", "32"};
  for (const Json& test_case : expected["cases"]) arguments.insert(arguments.end(), {"--prompt-ids", joined(test_case["input_ids"])});
  const ProgramResult result = run_program(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), expected["cases"].size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["index"], i);
    EXPECT_EQ(lines[i]["token_ids"], expected["cases"][i]["greedy"]) << i;
    EXPECT_EQ(lines[i]["finish_reason"], "length");
    EXPECT_EQ(lines[i]["usage"]["completion_tokens"], 32);
    EXPECT_EQ(lines[i]["error"], nullptr);
  }
}

TEST(GenerateTest, LogprobsArePrintedWithJson) {
  const Json expected = Json::parse(read_file(fixture("tiny-qwen3") + "/expected.json"))["cases"][0];
  const ProgramResult result =
      run_program({"generate", "--model", fixture("tiny-qwen3"), "--dtype", "float32", "--json", "--ignore-eos", "--max-tokens", "3",
                   "--logprobs", "2", "--prompt-logprobs", "1", "--prompt-ids", joined(expected["input_ids"])});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json line = lines_of(result.out).at(0);
  ASSERT_EQ(line["logprobs"].size(), 3u);
  EXPECT_EQ(line["logprobs"][0]["token_id"], expected["greedy"][0]);
  EXPECT_EQ(line["logprobs"][0]["top"].size(), 2u);
  ASSERT_EQ(line["prompt_logprobs"].size(), expected["input_ids"].size());
  EXPECT_EQ(line["prompt_logprobs"][0], nullptr);
  EXPECT_NEAR(line["prompt_logprobs"][1]["logprob"].get<double>(), expected["prompt_logprobs"][1].get<double>(), 1e-3);
}

TEST(GenerateTest, AFileMixesKindsOfPromptsAndABadLineCostsOnlyItself) {
  const TemporaryFolder folder;
  const std::string file = folder.write("p.jsonl",
                                        "{\"prompt\":\"Hello\",\"max_tokens\":2}\n"
                                        "{\"prompt_token_ids\":[1,2,3],\"max_tokens\":3,\"ignore_eos\":true}\n"
                                        "{\"prompt\":\"x\",\"max_tokens\":\"many\"}\n"
                                        "{oops\n"
                                        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":1}\n"
                                        "{\"prompt_token_ids\":[99999]}\n");
  const ProgramResult result = run_program({"generate", "--model", fixture("tiny-qwen3"), "--json", "--prompts-file", file});
  EXPECT_EQ(result.status, 1);
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 6u) << result.out;
  EXPECT_EQ(lines[1]["token_ids"].size(), 3u);
  EXPECT_EQ(lines[2]["error"]["param"], "max_tokens");
  EXPECT_EQ(lines[2]["error"]["message"].get<std::string>().rfind("line 3: ", 0), 0u);
  EXPECT_EQ(lines[3]["error"]["message"].get<std::string>().rfind("line 4: ", 0), 0u);
  EXPECT_EQ(lines[4]["error"], nullptr);
  EXPECT_EQ(lines[5]["error"]["message"].get<std::string>().rfind("line 6: ", 0), 0u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["index"], i);
}

TEST(GenerateTest, APromptComesFromStdin) {
  const ProgramResult direct =
      run_program({"generate", "--model", fixture("tiny-qwen3"), "--prompt", "Hello there", "--max-tokens", "4", "--json"});
  const ProgramResult piped =
      run_program({"generate", "--model", fixture("tiny-qwen3"), "--prompt", "-", "--max-tokens", "4", "--json"}, "", "", "Hello there");
  ASSERT_EQ(piped.status, 0) << piped.err;
  EXPECT_EQ(lines_of(direct.out).at(0)["token_ids"], lines_of(piped.out).at(0)["token_ids"]);
}

TEST(GenerateTest, StreamedTextIsTheSameAsTheResult) {
  const std::vector<std::string> common = {"generate", "--model",      fixture("tiny-qwen3"), "--prompt",
                                           "One two",  "--ignore-eos", "--max-tokens",        "20"};
  std::vector<std::string> with_json = common;
  with_json.emplace_back("--json");
  const ProgramResult streamed = run_program(common);
  const ProgramResult whole = run_program(with_json);
  ASSERT_EQ(streamed.status, 0) << streamed.err;
  EXPECT_EQ(streamed.out, lines_of(whole.out).at(0)["text"].get<std::string>() + "\n");
}

TEST(GenerateTest, ASeedMakesChoicesRepeatableAndDifferent) {
  const std::vector<std::string> arguments = {
      "generate", "--model", fixture("tiny-qwen3"), "--prompt", "Hello",        "--temperature", "1.5", "--seed", "7",
      "--n",      "3",       "--max-tokens",        "12",       "--ignore-eos", "--json"};
  const auto first = lines_of(run_program(arguments).out);
  const auto second = lines_of(run_program(arguments).out);
  ASSERT_EQ(first.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first[i]["choice"], i);
    EXPECT_EQ(first[i]["token_ids"], second[i]["token_ids"]);
    EXPECT_NE(first[i]["token_ids"], first[(i + 1) % 3]["token_ids"]);
  }
}

TEST(GenerateTest, InfoDoctorCheckAndBenchRun) {
  const ProgramResult info = run_program({"info", "--model", fixture("tiny-qwen3-moe"), "--json"});
  ASSERT_EQ(info.status, 0) << info.err;
  EXPECT_EQ(Json::parse(info.out)["configuration"]["experts"], 8);
  const ProgramResult shape = run_program({"info", "--model", "shape:qwen3-0.6b", "--json"});
  ASSERT_EQ(shape.status, 0) << shape.err;
  EXPECT_EQ(Json::parse(shape.out)["configuration"]["head_dim"], 128);
  EXPECT_EQ(run_program({"doctor"}).status, 0);
  const ProgramResult check = run_program({"check"});
  EXPECT_EQ(check.status, 0) << check.out;
  EXPECT_NE(check.out.find("decoder bfloat16"), std::string::npos);
  const ProgramResult bench = run_program(
      {"bench", "latency", "--model", fixture("tiny-qwen3"), "--prompt-tokens", "20", "--output-tokens", "4", "--runs", "3", "--json"});
  ASSERT_EQ(bench.status, 0) << bench.err;
  const auto records = lines_of(bench.out);
  ASSERT_EQ(records.size(), 3u);
  for (const char* key : {"what", "model", "device", "dtype", "flags", "commit", "probes", "unit", "samples", "median", "spread"}) {
    EXPECT_TRUE(records[0].contains(key)) << key;
  }
  EXPECT_EQ(records[0]["samples"].size(), 3u);
}

TEST(SmolLm2Test, AnAnswerNeedsLessThan450Megabytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "NOT RUN: a sanitizer multiplies memory";
#endif
  const char* model = std::getenv("MINISGL_TEST_SMOLLM2");
  if (model == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_SMOLLM2 is not set";
  const ProgramResult result =
      run_program({"generate", "--model", model, "--chat", "--prompt", "What is the capital of France?", "--max-tokens", "16"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("Paris"), std::string::npos) << result.out;
  EXPECT_LT(largest_child_bytes(), int64_t{450} * 1000 * 1000);
}

TEST(ChatTest, AConversationKeepsItsHistoryAndObeysCommands) {
  const ProgramResult result = run_program({"chat", "--model", fixture("tiny-qwen3"), "--max-tokens", "5"}, "", "",
                                           "Hi\n/set temperature hot\n/set temperature 0\n/nonsense\n/reset\nHi\n/exit\nnot reached\n");
  ASSERT_EQ(result.status, 0) << result.err;
  std::istringstream stream(result.out);
  std::string first;
  std::string second;
  std::getline(stream, first);
  std::getline(stream, second);
  EXPECT_EQ(first, second) << "after /reset the same question has the same greedy answer";
  EXPECT_NE(result.err.find("must be a number"), std::string::npos) << result.err;
}

TEST(ChatTest, TheOldestTurnIsDroppedPastTheContext) {
  std::string input;
  for (int i = 0; i < 6; ++i) input += "Tell me something long about the number " + std::to_string(i) + "\n";
  const ProgramResult result =
      run_program({"chat", "--model", fixture("tiny-qwen3"), "--max-tokens", "8", "--ignore-eos", "--max-model-len", "128"}, "", "", input);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("oldest turn is dropped"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("error"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace minisgl::test
