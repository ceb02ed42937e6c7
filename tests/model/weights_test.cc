#include "model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/error.h"
#include "checkpoint/writers.h"
#include "model/decoder.h"

namespace minisgl {
namespace {

/// A checkpoint of float32 tensors on disk: element i of tensor t, in the map's order, is t + i / 65536.
class TestCheckpoint {
 public:
  explicit TestCheckpoint(const std::map<std::string, Shape>& tensors) {
    test::SafetensorsWriter writer;
    float tensor = 0;
    for (const auto& [name, shape] : tensors) {
      std::vector<float> values(static_cast<size_t>(shape.elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = tensor + static_cast<float>(i) / 65536;
      std::vector<int64_t> dims;
      for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
      writer.add(name, dims, values);
      ++tensor;
    }
    test::write_file(folder_ / "model.safetensors", writer.bytes());
    checkpoint_ = open_safetensors_checkpoint(folder_.path());
  }
  Checkpoint& operator*() { return *checkpoint_; }

 private:
  test::TemporaryFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

ModelConfig small_config() {
  return parse_model_config(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 24, "vocab_size": 40, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true, "torch_dtype": "bfloat16"})",
                            "", "config.json");
}

std::map<std::string, Shape> small_tensors() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {40, 16}},       {"model.norm.weight", {16}},
          {layer + "input_layernorm.weight", {16}},      {layer + "post_attention_layernorm.weight", {16}},
          {layer + "self_attn.q_proj.weight", {16, 16}}, {layer + "self_attn.k_proj.weight", {8, 16}},
          {layer + "self_attn.v_proj.weight", {8, 16}},  {layer + "self_attn.o_proj.weight", {16, 16}},
          {layer + "self_attn.q_norm.weight", {8}},      {layer + "self_attn.k_norm.weight", {8}},
          {layer + "mlp.gate_proj.weight", {24, 16}},    {layer + "mlp.up_proj.weight", {24, 16}},
          {layer + "mlp.down_proj.weight", {16, 24}}};
}

class StrictLoadTest : public testing::Test {
 protected:
  void load(const std::map<std::string, Shape>& tensors, const LoadProgress& progress = {}) {
    TestCheckpoint checkpoint(tensors);
    Decoder decoder(small_config(), DType::kFloat32, 4, 64, *ops_, *communicator_);
    decoder.load(*checkpoint, progress);
  }
  std::string error_of(const std::map<std::string, Shape>& tensors) {
    try {
      load(tensors);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
      const std::string message = error.what();  // "<folder>: <finding>"
      return message.substr(std::min(message.find(": ") + 2, message.size()));
    }
    return "no error";
  }

  ComputePool pool_{1};
  std::unique_ptr<Ops> ops_ = make_cpu_ops(pool_);
  std::unique_ptr<Communicator> communicator_ = make_self_communicator();
  std::map<std::string, Shape> tensors_ = small_tensors();
};

TEST_F(StrictLoadTest, ReportsProgressUpToTheWhole) {
  int64_t last = 0, whole = 0;
  load(tensors_, [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    whole = total;
  });
  EXPECT_GT(whole, 0);
  EXPECT_EQ(last, whole);
}

TEST_F(StrictLoadTest, NamesAMissingTensorAndCountsTheOthers) {
  tensors_.erase("model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(error_of(tensors_), "tensor model.layers.0.mlp.up_proj.weight [24, 16] is missing");
  tensors_.erase("model.norm.weight");
  tensors_.erase("model.layers.0.self_attn.q_norm.weight");
  EXPECT_EQ(error_of(tensors_), "tensor model.layers.0.self_attn.q_norm.weight [8] is missing (and 2 more missing)");
}

TEST_F(StrictLoadTest, NamesAWrongShapeWithBothShapes) {
  tensors_["model.layers.0.self_attn.k_proj.weight"] = {16, 16};
  EXPECT_EQ(error_of(tensors_), "tensor model.layers.0.self_attn.k_proj.weight has shape [16, 16], the configuration asks for [8, 16]");
  tensors_["model.norm.weight"] = {16, 1};
  EXPECT_NE(error_of(tensors_).find("(and 1 more with a wrong shape)"), std::string::npos);
}

TEST_F(StrictLoadTest, NamesATensorThatIsLeftOver) {
  tensors_["model.layers.0.self_attn.q_proj.bias"] = {16};
  tensors_["model.layers.1.mlp.up_proj.weight"] = {24, 16};
  EXPECT_EQ(error_of(tensors_), "tensor model.layers.0.self_attn.q_proj.bias [16] has no place in this model (and 1 more left over)");
}

TEST_F(StrictLoadTest, AcceptsWhatTheModelDeclaresIgnorable) {
  tensors_["lm_head.weight"] = {40, 16};
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {4};
  EXPECT_EQ(error_of(tensors_), "no error");
}

TEST_F(StrictLoadTest, MergedMatricesHoldTheirPartsInOrder) {
  // The table's own slots over plain matrices, so that the rows can be read back.
  const auto merged = ops_->create_linear_weight(24, 16, DType::kFloat32);
  WeightTable table;
  table.add_matrix("a", *merged, 0, 16);
  table.add_matrix("b", *merged, 16, 8);
  TestCheckpoint checkpoint({{"a", {16, 16}}, {"b", {8, 16}}});
  load_weights(table, *checkpoint, *ops_, {});
  std::vector<int32_t> ids(24);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> rows(24 * 16);
  ops_->embedding(*merged, Tensor(ids.data(), DType::kInt32, {24}), Tensor(rows.data(), DType::kFloat32, {24, 16}));
  for (int i = 0; i < 24 * 16; ++i) {
    const float expected = i < 256 ? static_cast<float>(i) / 65536 : 1 + static_cast<float>(i - 256) / 65536;
    EXPECT_EQ(rows[static_cast<size_t>(i)], expected) << i;
  }
}

class DummyWeightsTest : public testing::Test {
 protected:
  /// The rows of a dummy matrix under `name`.
  std::vector<float> fill(const std::string& name, int64_t n, int64_t k, DType dtype) {
    const auto weight = ops_->create_linear_weight(n, k, dtype);
    WeightTable table;
    table.add_matrix(name, *weight);
    fill_dummy_weights(table, *ops_, {});
    std::vector<int32_t> ids(static_cast<size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> rows(static_cast<size_t>(n * k));
    ops_->embedding(*weight, Tensor(ids.data(), DType::kInt32, {n}), Tensor(rows.data(), DType::kFloat32, {n, k}));
    return rows;
  }

  ComputePool pool_{1};
  std::unique_ptr<Ops> ops_ = make_cpu_ops(pool_);
};

TEST_F(DummyWeightsTest, AreNormalWithDeviation002) {
  const std::vector<float> values = fill("model.embed_tokens.weight", 3000, 512, DType::kFloat32);  // several pieces
  double sum = 0, squares = 0, fourth = 0;
  for (const float value : values) {
    const double z = value / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.005);
  EXPECT_NEAR(squares / count, 1, 0.01);
  EXPECT_NEAR(fourth / count, 3, 0.05);
  // Neighbours are independent, within a hash and from one to the next.
  for (const size_t lag : {1u, 4u, 512u}) {
    double product = 0;
    for (size_t i = lag; i < values.size(); ++i) product += static_cast<double>(values[i]) * values[i - lag] / 0.0004;
    EXPECT_NEAR(product / count, 0, 0.005) << lag;
  }
}

TEST_F(DummyWeightsTest, DependOnNameAndIndexOnly) {
  const std::vector<float> large = fill("a", 600, 96, DType::kFloat32);
  const std::vector<float> again = fill("a", 60, 96, DType::kFloat32);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), large.begin()));
  EXPECT_NE(fill("b", 60, 96, DType::kFloat32), again);
  const std::vector<float> rounded = fill("a", 60, 96, DType::kBFloat16);
  for (size_t i = 0; i < rounded.size(); ++i) EXPECT_EQ(rounded[i], static_cast<float>(BFloat16(again[i])));
  // Fixed for good: a benchmark's tokens must not change with the version.
  EXPECT_FLOAT_EQ(again[0], -0.0073902379f);
  EXPECT_FLOAT_EQ(again[1], -0.0067267059f);
}

TEST_F(DummyWeightsTest, NormsAreOneAndBiasesZero) {
  OwnedTensor norm(DType::kFloat32, {5});
  OwnedTensor bias(DType::kFloat32, {5});
  WeightTable table;
  table.add_norm("norm", norm.view());
  table.add_bias("bias", bias.view(), 0, 5);
  fill_dummy_weights(table, *ops_, {});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(norm.view().data<float>()[i], 1.0f);
    EXPECT_EQ(bias.view().data<float>()[i], 0.0f);
  }
}

TEST(WeightBytes, PlanAgreesWithWhatIsAllocated) {
  ComputePool pool(1);
  const auto ops = make_cpu_ops(pool);
  const auto communicator = make_self_communicator();
  for (const std::string name : {"tiny-qwen2", "tiny-qwen3-untied", "tiny-mixtral", "tiny-qwen3-moe-mixed"}) {
    const ModelConfig config = load_model_config(std::filesystem::path(MINISGL_TEST_DATA) / "models" / name);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Decoder decoder(config, dtype, 4, 64, *ops, *communicator);
      const size_t plan = Decoder::weight_bytes(config, dtype);
      EXPECT_GE(decoder.weight_bytes(), plan) << name;
      EXPECT_LE(decoder.weight_bytes(), plan + plan / 50) << name;  // packed rows are padded
    }
  }
}

}  // namespace
}  // namespace minisgl
