#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/llm.h"
#include "model/fixtures.h"

namespace minisgl::test {

inline EngineConfig fixture_config(const std::string& name) {
  EngineConfig config;
  config.model = std::string(MINISGL_TEST_DATA) + "/models/" + name;
  config.dtype = "float32";
  config.max_running_requests = 16;
  // One prompt of 257 tokens is longer than the 256 positions that this model declares.
  if (name == "tiny-qwen3-yarn") config.max_model_len = 320;
  return config;
}

/// 32 greedy tokens, end-of-sequence ignored, as the fixtures were made.
inline GenerateRequest greedy_request(std::vector<int32_t> prompt, int64_t max_tokens = 32) {
  GenerateRequest request;
  request.prompt = TokenPrompt{std::move(prompt)};
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

inline GenerateResult generate_one(LLM& llm, const GenerateRequest& request) {
  return llm.generate({&request, 1}).at(0);
}

}  // namespace minisgl::test
