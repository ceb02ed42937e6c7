// ModelConfig from the metadata of a GGUF file. Keys that begin with the architecture's name: "llama.block_count".

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_config_limits.h"

namespace minisgl {

namespace {

struct Architecture {
  const char* gguf_name;
  const char* name;
  bool qk_norm;
};

constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", false},
    {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", true},
};

/// Checked access to the keys of one architecture.
class Fields {
 public:
  Fields(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(std::string(architecture) + ".") {}

  bool has(std::string_view key) const { return file_.contains(full(key)); }

  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const {
    const std::optional<int64_t> value = file_.integer(full(key));
    if (value && (*value < low || *value > high)) bad(key, *value, low, high);
    return value;
  }
  int64_t required_integer(std::string_view key, int64_t low, int64_t high) const {
    const std::optional<int64_t> value = integer(key, low, high);
    if (!value) fail_param(ErrorKind::kBadModel, full(key), "{}: metadata key {} is missing", file_.path().string(), full(key));
    return *value;
  }
  std::optional<double> number(std::string_view key, double low, double high) const {
    const std::optional<double> value = file_.number(full(key));
    if (value && !(*value >= low && *value <= high)) bad(key, *value, low, high);
    return value;
  }
  std::optional<std::string> string(std::string_view key) const { return file_.string(full(key)); }

  template <typename T>
  [[noreturn]] void not_supported(std::string_view key, const T& value, std::string_view why) const {
    fail_param(ErrorKind::kNotSupported, full(key), "{}: metadata key {} is {}, {}", file_.path().string(), full(key), value, why);
  }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  template <typename T>
  [[noreturn]] void bad(std::string_view key, T value, T low, T high) const {
    fail_param(ErrorKind::kBadModel, full(key), "{}: metadata key {} is {}, it must be from {} to {}", file_.path().string(), full(key),
               value, low, high);
  }

  const GgufFile& file_;
  std::string prefix_;
};

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

RopeConfig read_rope(const GgufFile& file, const Fields& fields, int64_t max_position) {
  RopeConfig rope;
  rope.theta = fields.number("rope.freq_base", 1.0, 1e15).value_or(10000.0);
  if (find_tensor(file, "rope_freqs.weight") != nullptr) {
    fail_param(ErrorKind::kNotSupported, "rope_freqs.weight",
               "{}: the tensor rope_freqs.weight asks for per-frequency RoPE factors, which are not supported in GGUF",
               file.path().string());
  }
  const std::string type = fields.string("rope.scaling.type").value_or("none");
  if (type == "none") return rope;
  rope.factor = fields.number("rope.scaling.factor", 1.0, 1e6).value_or(1.0);
  if (type == "linear") {
    rope.kind = RopeKind::kLinear;
  } else if (type == "yarn") {
    rope.kind = RopeKind::kYarn;
    rope.original_max_position = fields.integer("rope.scaling.original_context_length", 1, limits::kPositions).value_or(max_position);
    rope.attention_factor = yarn_mscale(rope.factor, 1.0) * fields.number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1.0);
    for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast",
                            "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier"}) {
      if (fields.has(key)) fields.not_supported(key, "set", "which is not supported");
    }
  } else {
    fields.not_supported("rope.scaling.type", type, "supported are none, linear, yarn");
  }
  return rope;
}

/// What the matrices are stored in; bfloat16 as soon as one is quantised.
DType stored_dtype(const GgufFile& file) {
  bool float16 = false;
  bool bfloat16 = false;
  for (const GgufTensor& tensor : file.tensors()) {
    const StorageType* type = gguf_storage_type(tensor.type);
    float16 |= type == &kStorageF16;
    bfloat16 |= type != &kStorageF16 && type != &kStorageF32;
  }
  return bfloat16 ? DType::kBFloat16 : float16 ? DType::kFloat16 : DType::kFloat32;
}

/// The ids that end a generation: the declared ones, and every control token whose text is a known end marker, because a file declares one
/// where Hugging Face's generation_config.json lists several.
std::vector<int32_t> end_token_ids(const GgufFile& file) {
  std::vector<int32_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const std::optional<int64_t> id = file.integer(key);
    if (!id) continue;
    if (*id < 0 || *id > limits::kTokenId)
      fail_param(ErrorKind::kBadModel, key, "{}: metadata key {} is {}, not a token id", file.path().string(), key, *id);
    ids.push_back(static_cast<int32_t>(*id));
  }
  constexpr int64_t kControl = 3;
  static constexpr std::array<std::string_view, 6> kEndMarkers = {"<|im_end|>", "<|endoftext|>",   "<|eot_id|>",
                                                                  "<|eom_id|>", "<|end_of_text|>", "</s>"};
  const std::optional<std::vector<std::string>> tokens = file.strings("tokenizer.ggml.tokens");
  const std::optional<std::vector<int64_t>> types = file.integers("tokenizer.ggml.token_type");
  if (tokens && types) {
    for (size_t i = 0; i < std::min(tokens->size(), types->size()); ++i) {
      if ((*types)[i] != kControl) continue;
      if (std::find(kEndMarkers.begin(), kEndMarkers.end(), (*tokens)[i]) != kEndMarkers.end()) ids.push_back(static_cast<int32_t>(i));
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

ModelConfig load_model_config(const GgufFile& file) {
  const std::string path = file.path().string();
  const std::optional<std::string> architecture_name = file.string("general.architecture");
  if (!architecture_name)
    fail_param(ErrorKind::kBadModel, "general.architecture", "{}: metadata key general.architecture is missing", path);
  const auto* architecture = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                          [&](const Architecture& candidate) { return *architecture_name == candidate.gguf_name; });
  if (architecture == std::end(kArchitectures)) {
    fail_param(ErrorKind::kNotSupported, "general.architecture",
               "{}: general.architecture is \"{:.60}\", which is not supported in GGUF; supported are llama, qwen2, qwen3", path,
               *architecture_name);
  }
  if (const int64_t parts = file.integer("split.count").value_or(1); parts > 1) {
    fail_param(ErrorKind::kNotSupported, "split.count",
               "{}: the model is split over {} files, which is not supported: merge them with llama-gguf-split", path, parts);
  }
  const Fields fields(file, architecture->gguf_name);

  ModelConfig config;
  config.architecture = architecture->name;
  config.num_layers = fields.required_integer("block_count", 1, limits::kLayers);
  config.hidden_size = fields.required_integer("embedding_length", 1, limits::kHiddenSize);
  config.num_heads = fields.required_integer("attention.head_count", 1, limits::kHeads);
  config.num_kv_heads = fields.integer("attention.head_count_kv", 1, limits::kHeads).value_or(config.num_heads);
  config.intermediate_size = fields.required_integer("feed_forward_length", 1, limits::kIntermediateSize);
  config.max_position_embeddings = fields.required_integer("context_length", 1, limits::kPositions);
  config.rms_norm_eps = fields.number("attention.layer_norm_rms_epsilon", 0.0, 1.0).value_or(1e-5);

  if (const std::optional<int64_t> key_length = fields.integer("attention.key_length", 2, limits::kHeadDim)) {
    config.head_dim = *key_length;
  } else if (config.hidden_size % config.num_heads == 0 && config.hidden_size / config.num_heads <= limits::kHeadDim) {
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    fail(ErrorKind::kBadModel,
         "{}: without attention.key_length the embedding length {} must be a multiple of the {} heads, at most {} times it", path,
         config.hidden_size, config.num_heads, limits::kHeadDim);
  }
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    const std::optional<int64_t> value = fields.integer(key, 0, limits::kHeadDim);
    if (value && *value != config.head_dim)
      fields.not_supported(key, *value, fmt::format("only the head dimension {} is supported", config.head_dim));
  }
  for (const char* key : {"expert_count", "attention.sliding_window"}) {
    const std::optional<int64_t> value = fields.integer(key, 0, limits::kPositions);
    if (value.value_or(0) > 0) fields.not_supported(key, *value, "which is not supported in GGUF");
  }

  const GgufTensor* embedding = find_tensor(file, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2 || embedding->shape[0] > limits::kVocabSize) {
    fail(ErrorKind::kBadModel, "{}: there must be a matrix token_embd.weight of at most {} rows", path, limits::kVocabSize);
  }
  config.vocab_size = embedding->shape[0];
  config.tie_word_embeddings = find_tensor(file, "output.weight") == nullptr;
  config.attention_bias = find_tensor(file, "blk.0.attn_q.bias") != nullptr;
  config.attention_output_bias = find_tensor(file, "blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = find_tensor(file, "blk.0.ffn_up.bias") != nullptr;
  config.qk_norm = architecture->qk_norm;
  config.rope = read_rope(file, fields, config.max_position_embeddings);
  config.layers.resize(static_cast<size_t>(config.num_layers));
  config.dtype = stored_dtype(file);
  config.eos_token_ids = end_token_ids(file);
  const std::optional<int64_t> bos = file.integer("tokenizer.ggml.bos_token_id");
  if (bos && *bos >= 0 && *bos <= limits::kTokenId) config.bos_token_id = static_cast<int32_t>(*bos);

  validate(config, path);
  return config;
}

}  // namespace minisgl
