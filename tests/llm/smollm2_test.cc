#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "llm/llm_impl.h"
#include "llm/llm_test_util.h"

/// A real model end to end: SmolLM2-135M-Instruct from a Q4_1 GGUF file, expanded to float32.
namespace minisgl {
namespace {

TEST(SmolLm2, PromptsAndChatsEqualTheReferenceInFloat32) {
  const char* corpus = std::getenv("MINISGL_TEST_CORPUS");
  const char* gguf = std::getenv("MINISGL_TEST_SMOLLM2");
  if (corpus == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";
  if (gguf == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_SMOLLM2 is not set";
  const nlohmann::json expected = fixtures::read_json(std::filesystem::path(corpus) / "smollm2_expected.json");

  EngineConfig config;
  config.model = gguf;
  config.dtype = "float32";
  config.max_running_requests = 16;
  config.max_model_len = 1024;
  LLM llm(config);
  std::vector<GenerateRequest> requests;
  std::vector<nlohmann::json> answers;
  for (const auto& entry : expected.at("prompts")) {
    requests.push_back({.prompt = TextPrompt{entry.at("text")}, .sampling = {}});
    answers.push_back(entry);
  }
  for (const auto& entry : expected.at("chats")) {
    ChatPrompt chat;
    chat.messages_json = entry.at("messages").dump();
    EXPECT_EQ(llm.impl().tokenizer.render(chat), entry.at("rendered").get<std::string>()) << entry.at("name");
    requests.push_back({.prompt = chat, .sampling = {}});
    answers.push_back(entry);
  }
  for (GenerateRequest& request : requests) {
    request.sampling.max_tokens = 48;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
  }
  const std::vector<GenerateResult> results = llm.generate(requests);
  ASSERT_EQ(results.size(), answers.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].prompt_token_ids, answers[i].at("prompt_ids").get<std::vector<int32_t>>()) << answers[i].at("name");
    EXPECT_EQ(results[i].token_ids, answers[i].at("output_ids").get<std::vector<int32_t>>()) << answers[i].at("name");
  }
}

}  // namespace
}  // namespace minisgl
