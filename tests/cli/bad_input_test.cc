// Bad input, as a user meets it: one line on stderr that names what is wrong, status 1 or 2, nothing on stdout.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace minisgl::test {
namespace {

namespace fs = std::filesystem;

/// A copy of a tiny model that a test may damage.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& model = "tiny-qwen3") { fs::copy(fixture(model), path(), fs::copy_options::recursive); }

  fs::path path() const { return folder_.path() / "model"; }
  void write(const std::string& name, const std::string& content) const { folder_.write("model/" + name, content); }
  void remove(const std::string& name) const { fs::remove(path() / name); }
  std::string read(const std::string& name) const { return read_file(path() / name); }
  /// Changes one field of config.json; `value` is JSON.
  void set_config(const std::string& field, const std::string& value) const {
    auto config = nlohmann::json::parse(read("config.json"));
    config[field] = nlohmann::json::parse(value);
    write("config.json", config.dump());
  }

 private:
  TemporaryFolder folder_;
};

void expect_refused(const ProgramResult& result, const std::string& named) {
  EXPECT_TRUE(result.status == 1 || result.status == 2) << result.status << "\n" << result.err;
  EXPECT_NE(result.err.find(named), std::string::npos) << "'" << named << "' is not in: " << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.out, "");
}

ProgramResult generate(const fs::path& model, std::vector<std::string> more = {"--prompt", "Hi"}) {
  std::vector<std::string> arguments = {"generate", "--model", model.string(), "--max-tokens", "2", "--log-level", "error"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

TEST(BadInputTest, AModelPathTypoNamesWhatIsThere) {
  const ProgramResult result = generate(fixture("tiny-qwen4"));
  expect_refused(result, "tiny-qwen3");
}

TEST(BadInputTest, AFolderWithOnlyPytorchWeights) {
  const ModelCopy model;
  model.remove("model.safetensors");
  model.write("pytorch_model.bin", "x");
  expect_refused(generate(model.path()), "pytorch_model.bin");
}

TEST(BadInputTest, AnLfsPointerInsteadOfWeights) {
  const ModelCopy model;
  model.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n");
  expect_refused(generate(model.path()), "LFS");
}

TEST(BadInputTest, AMissingShard) {
  const ModelCopy model;
  model.remove("model.safetensors");
  model.write("model.safetensors.index.json", R"({"weight_map":{"model.norm.weight":"model-00001-of-00002.safetensors"}})");
  expect_refused(generate(model.path()), "model-00001-of-00002.safetensors");
}

TEST(BadInputTest, TruncatedAndHostileWeights) {
  const ModelCopy model;
  const std::string whole = model.read("model.safetensors");
  model.write("model.safetensors", whole.substr(0, whole.size() - 100));
  expect_refused(generate(model.path()), "model.safetensors");
  model.write("model.safetensors", whole.substr(0, 5));
  expect_refused(generate(model.path()), "model.safetensors");
  model.write("model.safetensors", std::string(8, '\xff') + whole.substr(8));
  expect_refused(generate(model.path()), "model.safetensors");
  model.write("model.safetensors", "");
  expect_refused(generate(model.path()), "model.safetensors");
}

TEST(BadInputTest, ConfigurationsThatAreNotDone) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"architectures", R"(["GPT2LMHeadModel"])"},
      {"rope_parameters", R"({"rope_type":"dynamic","rope_theta":10000.0,"factor":2.0})"},
      {"rope_parameters", R"({"rope_type":"longrope","rope_theta":10000.0})"},
      {"quantization_config", R"({"quant_method":"awq","bits":4})"},
      {"hidden_act", R"("gelu")"},
      {"num_hidden_layers", "-3"},
      {"num_attention_heads", "1e30"},
      {"hidden_size", "\"big\""},
      {"num_key_value_heads", "3"},
  };
  for (const auto& [field, value] : changes) {
    const ModelCopy model;
    model.set_config(field, value);
    SCOPED_TRACE(field + " = " + value);
    const ProgramResult result = generate(model.path());
    expect_refused(result, field == "rope_parameters" ? "rope_type" : field == "num_key_value_heads" ? "key-value heads" : field);
  }
}

TEST(BadInputTest, AConfigurationThatDisagreesWithTheWeights) {
  const ModelCopy model;
  model.set_config("intermediate_size", "256");
  expect_refused(generate(model.path()), "gate_proj");
  model.set_config("intermediate_size", "128");
  model.set_config("layer_types", "null");
  model.set_config("num_hidden_layers", "2");
  expect_refused(generate(model.path()), "model.layers.2");
  model.set_config("num_hidden_layers", "4");
  expect_refused(generate(model.path()), "model.layers.3");
}

TEST(BadInputTest, BrokenTokenizers) {
  const ModelCopy model;
  const std::string whole = model.read("tokenizer.json");
  auto json = nlohmann::json::parse(whole);
  json["model"]["type"] = "Unigram";
  model.write("tokenizer.json", json.dump());
  expect_refused(generate(model.path()), "Unigram");
  json = nlohmann::json::parse(whole);
  json["pre_tokenizer"] = {{"type", "Telepathy"}};
  model.write("tokenizer.json", json.dump());
  expect_refused(generate(model.path()), "Telepathy");
  model.write("tokenizer.json", whole.substr(0, whole.size() / 2));
  expect_refused(generate(model.path()), "tokenizer.json");
  model.remove("tokenizer.json");
  expect_refused(generate(model.path()), "tokenizer.json");
}

TEST(BadInputTest, DamagedGguf) {
  const TemporaryFolder folder;
  expect_refused(generate(folder.write("a.gguf", "")), "a.gguf");
  expect_refused(generate(folder.write("b.gguf", "GGUF")), "b.gguf");
  std::string huge = "GGUF";
  huge += std::string("\x03\0\0\0", 4) + std::string(16, '\x7f');
  expect_refused(generate(folder.write("c.gguf", huge)), "c.gguf");
}

TEST(BadInputTest, RequestsOutsideTheirRanges) {
  const std::string model = fixture("tiny-qwen3");
  expect_refused(generate(model, {"--prompt", ""}), "no tokens");
  expect_refused(generate(model, {"--prompt-ids", "1,2,5000"}), "5000");
  expect_refused(generate(model, {"--prompt-ids", "-1"}), "--prompt-ids");
  expect_refused(generate(model, {"--prompt", "a", "--temperature", "-1"}), "temperature");
  expect_refused(generate(model, {"--prompt", "a", "--temperature", "nan"}), "temperature");
  expect_refused(generate(model, {"--prompt", "a", "--top-p", "0"}), "top_p");
  expect_refused(generate(model, {"--prompt", "a", "--top-p", "1.5"}), "top_p");
  expect_refused(generate(model, {"--prompt", "a", "--min-p", "2"}), "min_p");
  expect_refused(generate(model, {"--prompt", "a", "--top-k", "-7"}), "top_k");
  expect_refused(generate(model, {"--prompt", "a", "--n", "0"}), "n is 0");
  expect_refused(generate(model, {"--prompt", "a", "--repetition-penalty", "0"}), "repetition_penalty");
  expect_refused(generate(model, {"--prompt", "a", "--presence-penalty", "3"}), "presence_penalty");
  expect_refused(generate(model, {"--prompt", "a", "--logit-bias", "7:200"}), "logit_bias");
  expect_refused(generate(model, {"--prompt", "a", "--logit-bias", "seven"}), "--logit-bias");
  expect_refused(generate(model, {"--prompt", "a", "--stop-token-ids", "7000"}), "stop_token_ids");
  expect_refused(generate(model, {"--prompt", "a\xff"}), "UTF-8");
  expect_refused(generate(model, {"--chat", "--prompt", "a\xff"}), "UTF-8");
  for (const char* max_tokens : {"0", "-5", "abc", "1.5"}) {
    expect_refused(run_program({"generate", "--model", model, "--prompt", "a", "--max-tokens", max_tokens, "--log-level", "error"}), "max");
  }
}

TEST(BadInputTest, JsonNestedTooDeeplyIsRefusedWhereverItComesFrom) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const TemporaryFolder folder;
  const std::string messages = folder.write("m.jsonl", "{\"messages\":" + deep + "}\n");
  const ProgramResult tokenized = run_program({"tokenize", "--model", fixture("tiny-qwen3"), "--messages-file", messages});
  EXPECT_EQ(tokenized.status, 1) << tokenized.err;
  EXPECT_NE(tokenized.out.find("nested more than"), std::string::npos) << tokenized.out;
  const ProgramResult generated = run_program({"generate", "--model", fixture("tiny-qwen3"), "--prompts-file", messages, "--json"});
  EXPECT_EQ(generated.status, 1) << generated.err;
  EXPECT_NE(generated.out.find("nested more than"), std::string::npos) << generated.out;
  const ModelCopy model;
  model.write("tokenizer_config.json", "{\"chat_template\":[{\"template\":\"x\",\"name\":" + deep + "}]}");
  expect_refused(generate(model.path()), "nested more than");
}

TEST(BadInputTest, AFileThatCannotBeReadIsNamed) {
  const TemporaryFolder folder;
  expect_refused(generate(fixture("tiny-qwen3"), {"--prompts-file", folder.path().string()}), folder.path().string());
  expect_refused(generate(fixture("tiny-qwen3"), {"--prompts-file", "/dev/zero"}), "is longer than");
  const ModelCopy model;
  fs::permissions(model.path() / "model.safetensors", fs::perms::none);
  fs::permissions(folder.path(), fs::perms::none);
  // A process of root reads what it may not; as nobody it is refused.
  if (geteuid() == 0) fs::permissions(model.path().parent_path(), fs::perms::all);
  const std::string as_nobody = geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups" : "";
  const ProgramResult result =
      run_program({"generate", "--model", model.path().string(), "--prompt", "a", "--log-level", "error"}, as_nobody);
  fs::permissions(folder.path(), fs::perms::all);
  expect_refused(result, "ermission denied");
}

TEST(BadInputTest, WeightsThatOverlapOrHaveAnotherType) {
  const ModelCopy model;
  const std::string whole = model.read("model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), sizeof(header_bytes));
  const auto with_header = [&](const nlohmann::json& header) {
    const std::string text = header.dump();
    const uint64_t bytes = text.size();
    std::string file(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    return file + text + whole.substr(8 + header_bytes);
  };
  const auto header = nlohmann::json::parse(whole.substr(8, header_bytes));
  auto overlapping = header;
  overlapping["model.layers.0.self_attn.k_proj.weight"]["data_offsets"] = header["model.layers.0.self_attn.v_proj.weight"]["data_offsets"];
  model.write("model.safetensors", with_header(overlapping));
  expect_refused(generate(model.path()), "overlap");
  auto retyped = header;
  retyped["model.norm.weight"]["dtype"] = "I16";
  model.write("model.safetensors", with_header(retyped));
  expect_refused(generate(model.path()), "model.norm.weight");
}

TEST(BadInputTest, APromptLongerThanTheContext) {
  std::string ids = "1";
  for (int i = 0; i < 4100; ++i) ids += ",1";
  expect_refused(generate(fixture("tiny-qwen3"), {"--prompt-ids", ids}), "4096");
}

TEST(BadInputTest, EngineFlagsOutsideTheirRanges) {
  const std::string model = fixture("tiny-qwen3");
  const std::vector<std::pair<std::string, std::string>> flags = {
      {"--page-size", "0"},   {"--num-pages", "0"}, {"--max-model-len", "-1"}, {"--max-running-requests", "0"}, {"--memory-ratio", "1.5"},
      {"--dtype", "float17"}, {"--device", "tpu"},  {"--threads", "-2"},       {"--max-prefill-tokens", "0"},
  };
  for (const auto& [flag, value] : flags) {
    SCOPED_TRACE(flag + " " + value);
    expect_refused(generate(model, {"--prompt", "a", flag, value}), flag.substr(2));
  }
  for (const char* threads : {"-1", "1025", "4294967297", "99999999999"}) {
    SCOPED_TRACE(threads);
    const ProgramResult result = run_program({"check", "--threads", threads});
    expect_refused(result, "--threads");
    EXPECT_EQ(result.status, 2);
  }
  expect_refused(run_program({"generate", "--model", model, "--prompt", "a"}, "MINISGL_CPU_ISA=mmx"), "MINISGL_CPU_ISA");
}

TEST(BadInputTest, WrongCommandLines) {
  expect_refused(run_program({}), "no command");
  expect_refused(run_program({"generat"}), "did you mean 'generate'");
  expect_refused(run_program({"generate", "--model", "x", "--promt", "y"}), "did you mean --prompt");
  expect_refused(run_program({"generate", "--prompt", "y"}), "--model is missing");
  expect_refused(run_program({"generate", "--model", fixture("tiny-qwen3")}), "no prompt");
  expect_refused(run_program({"generate", "--model", "x", "--prompts-file", "/nonexistent"}), "/nonexistent");
  expect_refused(run_program({"generate", "--help"}, "MINISGL_PROMTP=1"), "did you mean MINISGL_PROMPT");
  EXPECT_EQ(run_program({"generate", "--promt"}).status, 2);
}

TEST(BadInputTest, AFullDeviceIsAnErrorAndAClosedPipeIsNot) {
  const ProgramResult full = run_program(
      {"generate", "--model", fixture("tiny-qwen3"), "--prompt", "a", "--max-tokens", "2", "--log-level", "error"}, "", "> /dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("stdout"), std::string::npos) << full.err;
  EXPECT_EQ(run_program({"doctor"}, "", "> /dev/full").status, 1);
  const ProgramResult closed = run_program(
      {"generate", "--model", fixture("tiny-qwen3"), "--prompt", "a", "--ignore-eos", "--max-tokens", "500", "--log-level", "error"}, "",
      "| head -c 1 > /dev/null");
  EXPECT_EQ(closed.err, "");
}

TEST(BadInputTest, WeightsLargerThanMemoryAreRefusedWithNumbers) {
  const ModelCopy model;
  model.set_config("num_hidden_layers", "1000");
  model.set_config("layer_types", "null");
  model.set_config("hidden_size", "16384");
  model.set_config("intermediate_size", "65536");
  expect_refused(generate(model.path(), {"--dummy-weights", "--prompt-ids", "1,2"}), "GiB");
}

TEST(BadInputTest, Float16WeightsAreNotRoundedInSilence) {
  const ModelCopy model;
  const auto err_of = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"generate", "--model", model.path().string(), "--prompt", "a", "--max-tokens", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  EXPECT_EQ(err_of({}).find("float16 weights"), std::string::npos);
  model.set_config("dtype", R"("float16")");
  const std::string err = err_of({});
  EXPECT_NE(err.find("float16 weights"), std::string::npos) << err;
  EXPECT_NE(err.find("--dtype float32"), std::string::npos) << err;
  EXPECT_EQ(err_of({"--dtype", "float32"}).find("float16 weights"), std::string::npos);
}

TEST(BadInputTest, AContextThatNoMemoryHoldsCostsNothingBeforeItIsUsed) {
  constexpr int64_t kMib = int64_t{1} << 20;
  const ModelCopy model;
  model.set_config("max_position_embeddings", "20000000");
  const ProgramResult info = run_program({"info", "--model", model.path().string(), "--json"});
  EXPECT_EQ(info.status, 0) << info.err;
  const ProgramResult refused = run_program(
      {"info", "--model", model.path().string(), "--max-model-len", "60000000", "--max-running-requests", "65536", "--log-level", "error"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.out.find("max_position_embeddings"), std::string::npos) << "what the model is, is told all the same: " << refused.out;
  EXPECT_NE(refused.err.find("--max-model-len 60000000"), std::string::npos) << refused.err;
  EXPECT_LT(largest_child_bytes(), 300 * kMib);
  const ProgramResult answer = run_program({"generate", "--model", model.path().string(), "--prompt", "a", "--max-tokens", "2"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  EXPECT_LT(largest_child_bytes(), 600 * kMib);
}

}  // namespace
}  // namespace minisgl::test
