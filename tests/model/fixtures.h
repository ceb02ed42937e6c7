#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// The fixture models of tests/data/models and what Hugging Face computes for them (expected.json, expected_long.json).
namespace minisgl::fixtures {

/// The five most likely tokens of one step, most likely first.
struct TopTokens {
  std::vector<int32_t> ids;
  std::vector<double> logits;
  std::vector<double> logprobs;
};

/// A prompt, its greedy continuation in float32 with EOS ignored, and per step of it the top tokens.
struct Case {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> greedy;
  std::vector<TopTokens> top5;
  std::vector<double> prompt_logprobs;  ///< of input_ids[1...]; empty if the file has none
};

/// How far Hugging Face's own bfloat16 run is from its float32 run (the worse of its CPU and CUDA values).
struct Bf16Error {
  double mean = 0;
  double p99 = 0;
  int top1_agree = 0;
};

struct Model {
  std::string name;
  std::filesystem::path folder;
  std::vector<Case> cases;
  std::optional<Case> long_case;
  Bf16Error bf16;
};

inline const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"tiny-llama3",       "tiny-mistral",   "tiny-mistral-swa", "tiny-mixtral",
                                                 "tiny-qwen2",        "tiny-qwen3",     "tiny-qwen3-moe",   "tiny-qwen3-moe-mixed",
                                                 "tiny-qwen3-untied", "tiny-qwen3-yarn"};
  return names;
}

/// Those with a case of 3,000 tokens.
inline const std::vector<std::string>& long_model_names() {
  static const std::vector<std::string> names = {"tiny-llama3", "tiny-mistral-swa", "tiny-qwen3", "tiny-qwen3-moe"};
  return names;
}

inline nlohmann::json read_json(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw std::runtime_error("cannot read " + file.string());
  return nlohmann::json::parse(stream);
}

inline Case parse_case(const nlohmann::json& json) {
  Case result;
  result.input_ids = json.at("input_ids").get<std::vector<int32_t>>();
  result.greedy = json.at("greedy").get<std::vector<int32_t>>();
  for (const auto& step : json.at("top5")) {
    result.top5.push_back({step.at("ids").get<std::vector<int32_t>>(), step.at("logits").get<std::vector<double>>(),
                           step.at("logprobs").get<std::vector<double>>()});
  }
  if (const auto it = json.find("prompt_logprobs"); it != json.end()) {
    for (size_t i = 1; i < it->size(); ++i) result.prompt_logprobs.push_back((*it)[i].get<double>());
  }
  return result;
}

inline Model load(const std::string& name) {
  Model model;
  model.name = name;
  model.folder = std::filesystem::path(MINISGL_TEST_DATA) / "models" / name;
  const nlohmann::json expected = read_json(model.folder / "expected.json");
  for (const auto& json : expected.at("cases")) model.cases.push_back(parse_case(json));
  if (std::filesystem::exists(model.folder / "expected_long.json")) {
    model.long_case = parse_case(read_json(model.folder / "expected_long.json"));
  }
  model.bf16.top1_agree = 1 << 30;
  for (const auto& [device, error] : expected.at("hf_bf16_logprob_error").items()) {
    model.bf16.mean = std::max(model.bf16.mean, error.at("mean").get<double>());
    model.bf16.p99 = std::max(model.bf16.p99, error.at("p99").get<double>());
    model.bf16.top1_agree = std::min(model.bf16.top1_agree, std::atoi(error.at("top1_agree").get<std::string>().c_str()));
  }
  return model;
}

/// Prompt and continuation in one sequence, as a teacher feeds it: the logits of token i predict token i + 1.
inline std::vector<int32_t> teacher_forced(const Case& c) {
  std::vector<int32_t> ids = c.input_ids;
  ids.insert(ids.end(), c.greedy.begin(), c.greedy.end());
  return ids;
}

/// A test-suite parameter's name: letters, digits and underscores.
inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace minisgl::fixtures
