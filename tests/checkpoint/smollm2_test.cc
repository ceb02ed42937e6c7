// A real file: the Q4_1 GGUF of SmolLM2-135M-Instruct. The expected values were computed from the file by a separate program.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"

namespace minisgl {
namespace {

class SmolLm2Test : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("MINISGL_TEST_SMOLLM2");
    if (path == nullptr) GTEST_SKIP() << "NOT RUN: MINISGL_TEST_SMOLLM2 is not set";
    path_ = path;
  }
  std::filesystem::path path_;
};

TEST_F(SmolLm2Test, ConfigurationAndVocabulary) {
  const GgufFile file(path_);
  const ModelConfig config = load_model_config(file);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.intermediate_size, 1536);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.max_position_embeddings, 8192);
  EXPECT_FLOAT_EQ(static_cast<float>(config.rms_norm_eps), 1e-5f);
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 100000.0}));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kBFloat16);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.parameter_count(), 134'515'008);
  EXPECT_EQ(file.strings("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(file.strings("tokenizer.ggml.merges")->size(), 48900u);
  EXPECT_EQ(file.boolean("tokenizer.ggml.add_bos_token"), false);
}

TEST_F(SmolLm2Test, WeightsExpandExactly) {
  const auto checkpoint = open_gguf_checkpoint(path_);
  std::vector<float> row(1536);
  const auto value = [&](const std::string& name, int64_t r, size_t column) {
    checkpoint->read_rows(name, r, 1, DType::kFloat32, row.data());
    return row[column];
  };
  EXPECT_EQ(value("model.embed_tokens.weight", 0, 0), -0.10654449462890625f);
  EXPECT_EQ(value("model.embed_tokens.weight", 1234, 33), 0.08652114868164062f);
  EXPECT_EQ(value("model.embed_tokens.weight", 49151, 575), -0.0417022705078125f);
  EXPECT_EQ(value("model.layers.0.self_attn.q_proj.weight", 1, 0), -0.1591796875f);
  EXPECT_EQ(value("model.layers.0.self_attn.q_proj.weight", 32, 40), 0.04461669921875f);
  EXPECT_EQ(value("model.layers.29.self_attn.k_proj.weight", 65, 3), 0.0205078125f);
  EXPECT_EQ(value("model.layers.29.self_attn.v_proj.weight", 65, 3), 0.5123291015625f);
  EXPECT_EQ(value("model.layers.3.mlp.down_proj.weight", 575, 1535), 0.3575439453125f);
  EXPECT_EQ(value("model.norm.weight", 7, 0), 1.75f);
}

/// Resident bytes of file mappings.
size_t resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

TEST_F(SmolLm2Test, ReadingEverythingLeavesLittleOfTheFileResident) {
  const auto checkpoint = open_gguf_checkpoint(path_);
  EXPECT_EQ(checkpoint->names().size(), 272u);
  const size_t before = resident_file_bytes();
  constexpr int64_t kRows = 256;
  std::vector<float> out(kRows * 1536);
  size_t peak = 0;
  for (const std::string_view name : checkpoint->names()) {
    const int64_t rows = checkpoint->info(name).shape[0];
    for (int64_t row = 0; row < rows; row += kRows) {
      checkpoint->read_rows(name, row, std::min(kRows, rows - row), DType::kFloat32, out.data());
      peak = std::max(peak, resident_file_bytes());
    }
  }
  ASSERT_GT(before, 0u);
  EXPECT_LT(peak, before + (size_t{4} << 20));
}

}  // namespace
}  // namespace minisgl
