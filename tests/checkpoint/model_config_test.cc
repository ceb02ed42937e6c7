#include "checkpoint/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "checkpoint/expect_error.h"
#include "checkpoint/model_path.h"
#include "checkpoint/writers.h"

namespace minisgl {
namespace {

using nlohmann::json;
using test::expect_error;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(MINISGL_TEST_DATA) / "models" / name;
}

/// What the fixture models have in common.
ModelConfig fixture_base(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.num_layers = 3;
  config.hidden_size = 64;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.intermediate_size = 128;
  config.vocab_size = 1024;
  config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-6;
  config.rope.theta = 1e6;
  config.layers.resize(3);
  config.dtype = DType::kBFloat16;
  config.eos_token_ids = {1020};
  return config;
}

TEST(ModelConfig, Qwen3FixturesParse) {
  ModelConfig expected = fixture_base("Qwen3ForCausalLM");
  expected.qk_norm = true;
  EXPECT_EQ(load_model_config(fixture("tiny-qwen3-untied")), expected);
  expected.tie_word_embeddings = true;
  EXPECT_EQ(load_model_config(fixture("tiny-qwen3")), expected);
  expected.max_position_embeddings = 256;
  expected.rope.kind = RopeKind::kYarn;
  expected.rope.factor = 4.0;
  expected.rope.original_max_position = 64;
  expected.rope.attention_factor = 0.1 * std::log(4.0) + 1.0;
  EXPECT_EQ(load_model_config(fixture("tiny-qwen3-yarn")), expected);
}

TEST(ModelConfig, Qwen2FixtureHasBiasesByItsModelType) {
  ModelConfig expected = fixture_base("Qwen2ForCausalLM");
  expected.num_layers = 2;
  expected.layers.resize(2);
  expected.hidden_size = 256;
  expected.attention_bias = true;
  expected.tie_word_embeddings = true;
  EXPECT_EQ(load_model_config(fixture("tiny-qwen2")), expected);
}

TEST(ModelConfig, LlamaAndMistralFixturesParse) {
  ModelConfig llama = fixture_base("LlamaForCausalLM");
  llama.rope = {
      .kind = RopeKind::kLlama3, .theta = 5e5, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 64};
  EXPECT_EQ(load_model_config(fixture("tiny-llama3")), llama);

  ModelConfig mistral = fixture_base("MistralForCausalLM");
  mistral.rope.theta = 1e4;
  EXPECT_EQ(load_model_config(fixture("tiny-mistral")), mistral);
  EXPECT_FALSE(mistral.has_sliding_window());
  for (LayerConfig& layer : mistral.layers) layer.sliding_window = 32;
  EXPECT_EQ(load_model_config(fixture("tiny-mistral-swa")), mistral);
}

TEST(ModelConfig, MixtureOfExpertsFixturesParse) {
  ModelConfig qwen = fixture_base("Qwen3MoeForCausalLM");
  qwen.qk_norm = true;
  qwen.moe = {.num_experts = 8, .experts_per_token = 2, .moe_intermediate_size = 32, .norm_topk_prob = true};
  for (LayerConfig& layer : qwen.layers) layer.sparse = true;
  EXPECT_EQ(load_model_config(fixture("tiny-qwen3-moe")), qwen);
  qwen.moe = {.num_experts = 16, .experts_per_token = 4, .moe_intermediate_size = 32, .norm_topk_prob = false};
  qwen.layers[0].sparse = false;
  EXPECT_EQ(load_model_config(fixture("tiny-qwen3-moe-mixed")), qwen);

  ModelConfig mixtral = fixture_base("MixtralForCausalLM");
  mixtral.intermediate_size = 96;
  mixtral.rms_norm_eps = 1e-5;
  mixtral.moe = {.num_experts = 6, .experts_per_token = 2, .moe_intermediate_size = 96, .norm_topk_prob = true};
  for (LayerConfig& layer : mixtral.layers) layer.sparse = true;
  EXPECT_EQ(load_model_config(fixture("tiny-mixtral")), mixtral);
}

TEST(ModelConfig, ShapesHaveTheParameterCountsOfTheirModels) {
  EXPECT_EQ(shape_names(), (std::vector<std::string_view>{"qwen3-0.6b", "qwen3-14b", "qwen3-30b-a3b", "qwen3-32b", "qwen3-8b"}));
  EXPECT_EQ(load_shape_config("qwen3-0.6b").parameter_count(), 596'049'920);
  EXPECT_EQ(load_shape_config("qwen3-8b").parameter_count(), 8'190'735'360);
  EXPECT_EQ(load_shape_config("qwen3-14b").parameter_count(), 14'768'307'200);
  EXPECT_EQ(load_shape_config("qwen3-32b").parameter_count(), 32'762'123'264);
  EXPECT_EQ(load_shape_config("qwen3-30b-a3b").parameter_count(), 30'532'122'624);
  EXPECT_TRUE(load_shape_config("qwen3-0.6b").tie_word_embeddings);
  EXPECT_EQ(load_model_config(ModelPath{ModelFormat::kShape, "", "qwen3-8b"}).hidden_size, 4096);
  expect_error(ErrorKind::kNotFound, {"\"qwen3-7b\"", "qwen3-8b"}, [] { load_shape_config("qwen3-7b"); });
}

/// A valid Llama configuration in the form of transformers 4.
json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"num_hidden_layers", 2},
          {"vocab_size", 100},
          {"max_position_embeddings", 512},
          {"rope_theta", 50000.0},
          {"torch_dtype", "float16"}};
}

json qwen(const std::string& architecture, const std::string& type) {
  json config = llama();
  config["architectures"] = {architecture};
  config["model_type"] = type;
  config["num_hidden_layers"] = 4;
  return config;
}

ModelConfig parse(const json& config, const std::string& generation = "") {
  return parse_model_config(config.dump(), generation, "m");
}

/// Expects `key` set to `value` in the configuration `base` to be refused with `parts`.
void expect_refused(json base, const char* key, const json& value, ErrorKind kind, std::vector<std::string> parts) {
  base[key] = value;
  parts.push_back("m/config.json");
  expect_error(kind, parts, [&] { parse(base); });
}

TEST(ModelConfig, RopeIsReadInBothForms) {
  json config = llama();
  EXPECT_EQ(parse(config).rope, (RopeConfig{.theta = 50000.0}));
  EXPECT_EQ(parse(config).dtype, DType::kFloat16);
  EXPECT_EQ(parse(config).head_dim, 16);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(parse(config).rope, (RopeConfig{.kind = RopeKind::kLinear, .theta = 50000.0, .factor = 2}));
  config["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(parse(config).rope, (RopeConfig{.theta = 50000.0}));
  config["rope_scaling"] = nullptr;
  config["rope_parameters"] = {{"rope_type", "linear"}, {"rope_theta", 70.0}, {"factor", 3.0}};
  EXPECT_EQ(parse(config).rope, (RopeConfig{.kind = RopeKind::kLinear, .theta = 70.0, .factor = 3}));
  config["rope_parameters"].erase("rope_theta");
  EXPECT_EQ(parse(config).rope.theta, 50000.0);
  config.erase("rope_theta");
  EXPECT_EQ(parse(config).rope.theta, 10000.0);
}

TEST(ModelConfig, YarnNumbersAreResolved) {
  json config = llama();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4}};
  RopeConfig rope = parse(config).rope;
  EXPECT_EQ(rope.kind, RopeKind::kYarn);
  EXPECT_EQ(rope.original_max_position, 512);
  EXPECT_DOUBLE_EQ(rope.attention_factor, 1.1386294361119891);
  EXPECT_TRUE(rope.truncate);
  config["rope_scaling"].update({{"mscale", 0.5}, {"mscale_all_dim", 2.0}, {"beta_fast", 16}, {"beta_slow", 0}, {"truncate", false}});
  rope = parse(config).rope;
  EXPECT_DOUBLE_EQ(rope.attention_factor, (0.05 * std::log(4.0) + 1) / (0.2 * std::log(4.0) + 1));
  EXPECT_EQ(rope.beta_fast, 16);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_FALSE(rope.truncate);
  config["rope_scaling"]["attention_factor"] = 0.75;
  EXPECT_EQ(parse(config).rope.attention_factor, 0.75);
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 1}};
  EXPECT_EQ(parse(config).rope.attention_factor, 1.0);
}

TEST(ModelConfig, RopeThatIsNotUnderstoodIsRefusedByName) {
  const auto refuse = [](const json& scaling, ErrorKind kind, const std::vector<std::string>& parts) {
    expect_refused(llama(), "rope_scaling", scaling, kind, parts);
  };
  refuse({{"type", "dynamic"}, {"factor", 2}}, ErrorKind::kNotSupported,
         {"rope_scaling.type is \"dynamic\"", "default, linear, llama3, yarn"});
  refuse({{"rope_type", "longrope"}}, ErrorKind::kNotSupported, {"rope_scaling.rope_type is \"longrope\""});
  refuse({{"type", 3}}, ErrorKind::kBadModel, {"rope_scaling.type is 3"});
  refuse({{"factor", 2}}, ErrorKind::kBadModel, {"rope_scaling.rope_type is missing"});
  refuse({{"type", "linear"}}, ErrorKind::kBadModel, {"rope_scaling.factor is missing"});
  refuse({{"type", "linear"}, {"factor", "2"}}, ErrorKind::kBadModel, {"rope_scaling.factor is \"2\""});
  refuse({{"type", "linear"}, {"factor", 0.5}}, ErrorKind::kBadModel, {"rope_scaling.factor is 0.5"});
  refuse({{"type", "linear"}, {"factor", 2}, {"mrope_section", {1, 2}}}, ErrorKind::kNotSupported, {"rope_scaling.mrope_section is [1,2]"});
  refuse({{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}, {"original_max_position_embeddings", 64}},
         ErrorKind::kBadModel, {"rope_scaling.high_freq_factor is 1"});
  refuse({{"type", "yarn"}, {"factor", 4}, {"attention_factor", -1}}, ErrorKind::kBadModel, {"rope_scaling.attention_factor is -1"});
  refuse({{"type", "default"}, {"partial_rotary_factor", 0.5}}, ErrorKind::kNotSupported, {"partial_rotary_factor is 0.5"});
  refuse("linear", ErrorKind::kBadModel, {"rope_scaling is \"linear\"", "object"});
  json per_layer_type = llama();
  expect_refused(llama(), "rope_parameters", {{"full_attention", {{"rope_theta", 1.0}}}}, ErrorKind::kNotSupported,
                 {"rope_parameters.full_attention"});
}

TEST(ModelConfig, HeadDimensionFollowsTheFileThenTheArchitecture) {
  EXPECT_EQ(parse(qwen("Qwen2ForCausalLM", "qwen2")).head_dim, 16);
  EXPECT_EQ(parse(qwen("Qwen3ForCausalLM", "qwen3")).head_dim, 128);
  json config = qwen("Qwen3ForCausalLM", "qwen3");
  config["head_dim"] = nullptr;
  EXPECT_EQ(parse(config).head_dim, 16);
  config["head_dim"] = 20;
  EXPECT_EQ(parse(config).head_dim, 20);
}

TEST(ModelConfig, BiasesFollowTheArchitecture) {
  json config = llama();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  EXPECT_TRUE(parse(config).attention_bias);
  EXPECT_TRUE(parse(config).attention_output_bias);
  EXPECT_TRUE(parse(config).mlp_bias);
  EXPECT_TRUE(parse(qwen("Qwen2ForCausalLM", "qwen2")).attention_bias);
  EXPECT_FALSE(parse(qwen("Qwen2ForCausalLM", "qwen2")).attention_output_bias);
  EXPECT_FALSE(parse(qwen("Qwen3ForCausalLM", "qwen3")).attention_bias);
  expect_refused(qwen("MistralForCausalLM", "mistral"), "attention_bias", true, ErrorKind::kNotSupported,
                 {"attention_bias", "MistralForCausalLM"});
  expect_refused(qwen("Qwen3ForCausalLM", "qwen3"), "mlp_bias", true, ErrorKind::kNotSupported, {"mlp_bias"});
}

TEST(ModelConfig, SlidingWindowsFollowTheArchitecture) {
  const auto windows = [](const json& config) {
    std::vector<int64_t> result;
    for (const LayerConfig& layer : parse(config).layers) result.push_back(layer.sliding_window);
    return result;
  };
  using Windows = std::vector<int64_t>;
  json config = qwen("Qwen2ForCausalLM", "qwen2");
  config["sliding_window"] = 8;
  config["max_window_layers"] = 2;
  EXPECT_EQ(windows(config), (Windows{0, 0, 0, 0}));
  config["use_sliding_window"] = true;
  EXPECT_EQ(windows(config), (Windows{0, 0, 8, 8}));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(windows(config), (Windows{8, 0, 0, 8}));
  config["use_sliding_window"] = false;
  expect_error(ErrorKind::kBadModel, {"layer_types[0]", "sliding_attention", "off"}, [&] { parse(config); });
  config["layer_types"] = {"linear_attention", "full_attention", "full_attention", "full_attention"};
  expect_error(ErrorKind::kNotSupported, {"layer_types[0]", "linear_attention"}, [&] { parse(config); });
  config["layer_types"] = {"full_attention"};
  expect_error(ErrorKind::kBadModel, {"layer_types", "num_hidden_layers = 4"}, [&] { parse(config); });

  config = qwen("MistralForCausalLM", "mistral");
  EXPECT_EQ(windows(config), (Windows{4096, 4096, 4096, 4096}));
  config["sliding_window"] = nullptr;
  EXPECT_EQ(windows(config), (Windows{0, 0, 0, 0}));
  config["sliding_window"] = 16;
  EXPECT_EQ(windows(config), (Windows{16, 16, 16, 16}));
  config["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention", "sliding_attention"};
  expect_error(ErrorKind::kBadModel, {"layer_types[0]", "16"}, [&] { parse(config); });
  expect_refused(qwen("MistralForCausalLM", "mistral"), "sliding_window", 0, ErrorKind::kBadModel, {"sliding_window is 0"});

  config = qwen("LlamaForCausalLM", "llama");
  config["sliding_window"] = 16;
  EXPECT_EQ(windows(config), (Windows{0, 0, 0, 0}));
}

TEST(ModelConfig, SparseLayersFollowStepAndList) {
  json config = qwen("Qwen3MoeForCausalLM", "qwen3_moe");
  config.update({{"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 32},
                 {"decoder_sparse_step", 2},
                 {"mlp_only_layers", {3}}});
  std::vector<bool> sparse;
  for (const LayerConfig& layer : parse(config).layers) sparse.push_back(layer.sparse);
  EXPECT_EQ(sparse, (std::vector<bool>{false, true, false, false}));
  EXPECT_TRUE(parse(config).has_sparse_layers());
  expect_refused(config, "num_experts_per_tok", 9, ErrorKind::kBadModel, {"9 experts per token of 8"});
  expect_refused(config, "mlp_only_layers", {4}, ErrorKind::kBadModel, {"mlp_only_layers", "0 to 3"});
  expect_refused(config, "mlp_only_layers", {-1}, ErrorKind::kBadModel, {"mlp_only_layers"});
  expect_refused(config, "decoder_sparse_step", 0, ErrorKind::kBadModel, {"decoder_sparse_step is 0"});
  expect_refused(config, "shared_expert_intermediate_size", 64, ErrorKind::kNotSupported, {"shared_expert_intermediate_size is 64"});
  expect_refused(llama(), "num_local_experts", 8, ErrorKind::kNotSupported, {"num_local_experts is 8", "LlamaForCausalLM"});
}

TEST(ModelConfig, EndTokensAreTheUnionOfBothFiles) {
  json config = llama();
  config["eos_token_id"] = {7, 3};
  config["bos_token_id"] = 1;
  EXPECT_EQ(parse(config, R"({"eos_token_id": [3, 9]})").eos_token_ids, (std::vector<int32_t>{3, 7, 9}));
  EXPECT_EQ(parse(config).bos_token_id, 1);
  EXPECT_EQ(parse(llama(), R"({"eos_token_id": 5})").eos_token_ids, std::vector<int32_t>{5});
  EXPECT_TRUE(parse(llama()).eos_token_ids.empty());
  expect_refused(llama(), "eos_token_id", -1, ErrorKind::kBadModel, {"eos_token_id is -1"});
  expect_refused(llama(), "eos_token_id", "</s>", ErrorKind::kBadModel, {"eos_token_id is \"</s>\""});
  expect_refused(llama(), "eos_token_id", {1, int64_t{1} << 31}, ErrorKind::kBadModel, {"eos_token_id is [1,2147483648]"});
}

TEST(ModelConfig, SamplingDefaultsComeFromGenerationConfig) {
  const GenerationDefaults defaults =
      parse(llama(),
            R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05, "max_new_tokens": 9})")
          .generation;
  EXPECT_TRUE(defaults.do_sample);
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.top_p, 0.95);
  EXPECT_EQ(defaults.min_p, std::nullopt);
  EXPECT_EQ(defaults.repetition_penalty, 1.05);
  EXPECT_EQ(parse(llama()).generation, GenerationDefaults{});
  expect_error(ErrorKind::kBadModel, {"m/generation_config.json", "top_p is 1.5", "from 0 to 1"},
               [] { parse(llama(), R"({"top_p": 1.5})"); });
  expect_error(ErrorKind::kBadModel, {"temperature is \"hot\""}, [] { parse(llama(), R"({"temperature": "hot"})"); });
  expect_error(ErrorKind::kBadModel, {"m/generation_config.json", "JSON"}, [] { parse(llama(), "{"); });
}

TEST(ModelConfig, UnknownArchitecturesAreRefusedWithTheSupportedOnes) {
  const std::string list =
      "LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM";
  expect_refused(llama(), "architectures", {"Qwen3_5ForCausalLM"}, ErrorKind::kNotSupported, {"Qwen3_5ForCausalLM", list});
  json config = llama();
  config.erase("architectures");
  EXPECT_EQ(parse(config).architecture, "LlamaForCausalLM");
  expect_refused(config, "model_type", "mamba", ErrorKind::kNotSupported, {"model_type is \"mamba\"", list});
  config.erase("model_type");
  expect_error(ErrorKind::kBadModel, {"architectures is missing", list}, [&] { parse(config); });
  expect_refused(llama(), "model_type", "mistral", ErrorKind::kBadModel, {"model_type is \"mistral\"", "LlamaForCausalLM"});
  expect_refused(llama(), "architectures", "LlamaForCausalLM", ErrorKind::kBadModel, {"architectures", "list"});
}

TEST(ModelConfig, WhatTheEngineDoesNotDoIsRefusedByField) {
  for (const char* method : {"gptq", "awq", "fp8"}) {
    expect_refused(llama(), "quantization_config", {{"quant_method", method}}, ErrorKind::kNotSupported, {"quantization_config", method});
  }
  expect_refused(llama(), "hidden_act", "gelu", ErrorKind::kNotSupported, {"hidden_act is \"gelu\"", "silu"});
  expect_refused(llama(), "partial_rotary_factor", 0.5, ErrorKind::kNotSupported, {"partial_rotary_factor is 0.5"});
  expect_refused(llama(), "attn_logit_softcapping", 50.0, ErrorKind::kNotSupported, {"attn_logit_softcapping is 50"});
  expect_refused(llama(), "vision_config", json::object(), ErrorKind::kNotSupported, {"vision_config"});
  expect_refused(llama(), "torch_dtype", "float8_e4m3fn", ErrorKind::kNotSupported, {"torch_dtype is \"float8_e4m3fn\""});
  json neutral = llama();
  neutral.update(
      {{"partial_rotary_factor", 1}, {"attn_logit_softcapping", nullptr}, {"quantization_config", nullptr}, {"hidden_act", "silu"}});
  EXPECT_NO_THROW(parse(neutral));
}

TEST(ModelConfig, EveryNumberIsChecked) {
  const json bad_sizes[] = {0, -1, 1.5, "64", true, {64}, json::object(), int64_t{1} << 40, std::numeric_limits<uint64_t>::max(), 1e300};
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
                          "vocab_size", "max_position_embeddings", "head_dim"}) {
    for (const json& value : bad_sizes) expect_refused(llama(), key, value, ErrorKind::kBadModel, {std::string(key) + " is ", "integer"});
    if (std::string_view(key) == "num_key_value_heads" || std::string_view(key) == "head_dim") continue;
    json missing = llama();
    missing.erase(key);
    expect_error(ErrorKind::kBadModel, {std::string(key) + " is missing"}, [&] { parse(missing); });
  }
  expect_refused(llama(), "num_key_value_heads", 3, ErrorKind::kBadModel, {"4 attention heads", "3 key-value heads"});
  expect_refused(llama(), "head_dim", 7, ErrorKind::kBadModel, {"head_dim is 7", "even"});
  expect_refused(llama(), "hidden_size", 66, ErrorKind::kBadModel, {"hidden_size is 66", "num_attention_heads = 4"});
  expect_refused(llama(), "rms_norm_eps", -1e-6, ErrorKind::kBadModel, {"rms_norm_eps"});
  expect_refused(llama(), "rope_theta", 0, ErrorKind::kBadModel, {"rope_theta is 0"});
  expect_refused(llama(), "tie_word_embeddings", "yes", ErrorKind::kBadModel, {"tie_word_embeddings is \"yes\"", "true or false"});
  json huge = llama();
  huge.update({{"hidden_size", 1 << 18}, {"intermediate_size", 1 << 20}, {"num_hidden_layers", 1 << 10}, {"head_dim", 2}});
  expect_error(ErrorKind::kBadModel, {"parameters"}, [&] { parse(huge); });
  huge = qwen("MixtralForCausalLM", "mixtral");
  huge.update({{"hidden_size", 1 << 18},
               {"intermediate_size", 1 << 20},
               {"num_hidden_layers", 1 << 10},
               {"num_local_experts", 1 << 12},
               {"num_experts_per_tok", 1}});
  huge.update({{"head_dim", 1 << 12}, {"num_attention_heads", 1 << 12}, {"num_key_value_heads", 1 << 12}, {"vocab_size", 1 << 24}});
  expect_error(ErrorKind::kBadModel, {"parameters"}, [&] { parse(huge); });
}

TEST(ModelConfig, BadJsonIsOneClearLine) {
  const auto expect = [](const std::string& text, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::kBadModel, parts, [&] { parse_model_config(text, "", "m"); });
  };
  expect("", {"m/config.json", "not valid JSON"});
  expect("{\"a\": NaN}", {"m/config.json", "not valid JSON", "byte 7"});
  expect("{\"a\": \"\xff\"}", {"not valid JSON"});
  expect("[1]", {"JSON object", "[1]"});
  expect("{\"vocab_size\": 1e999}", {"out of range"});
  expect("{\"vocab_size\": 1, \"vocab_size\": 2}", {"\"vocab_size\" appears twice"});
  expect(std::string(100000, '['), {"nested more than 64"});
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  expect(objects, {"nested more than 64"});
  expect("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", {"m/config.json", "Git LFS pointer"});
  json config = llama();
  config["hidden_act"] = std::string(10000, 'x') + "\n";
  expect_error(ErrorKind::kNotSupported, {"hidden_act"}, [&] { parse(config); });
}

TEST(ModelConfig, FoldersWithoutAConfigurationSayWhatTheyHold) {
  test::TemporaryFolder folder;
  expect_error(ErrorKind::kBadModel, {"no config.json", "it is empty"}, [&] { load_model_config(folder.path()); });
  for (int i = 0; i < 7; ++i) test::write_file(folder / ("file" + std::to_string(i)), "");
  expect_error(ErrorKind::kBadModel, {"no config.json", "file0, file1", "and 2 more"}, [&] { load_model_config(folder.path()); });
  test::write_file(folder / "config.json", std::string((4 << 20) + 1, ' '));
  expect_error(ErrorKind::kBadModel, {"config.json", "4194305 bytes"}, [&] { load_model_config(folder.path()); });
}

}  // namespace
}  // namespace minisgl
