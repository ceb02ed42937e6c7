// ModelConfig from config.json and generation_config.json, with the defaults that Hugging Face's configuration classes have for a field
// that a file leaves out.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/folder_listing.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_config_limits.h"

namespace minisgl {

using nlohmann::json;

namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

enum class Bias : uint8_t { kNever, kAlways, kByConfig };

/// Which layers attend through a sliding window.
enum class Window : uint8_t {
  kNever,        ///< none
  kEverywhere,   ///< all of them, if `sliding_window` is set
  kSwitched,     ///< all of them, if `use_sliding_window` is true
  kUpperLayers,  ///< with `use_sliding_window`: those that `layer_types` names, or those from `max_window_layers` on
};

/// What the name of an architecture settles, and the defaults of its configuration class.
struct Architecture {
  const char* name;
  const char* model_type;
  Bias qkv_bias;
  bool output_bias_by_config;
  bool mlp_bias_by_config;
  bool qk_norm;
  Window window;
  int64_t default_window;    // where `sliding_window` is absent; 0: none
  int64_t default_head_dim;  // where `head_dim` is absent; 0: hidden_size / num_attention_heads
  double default_theta;
  double default_rms_norm_eps;
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", Bias::kByConfig, true, true, false, Window::kNever, 0, 0, 1e4, 1e-6},
    {"MistralForCausalLM", "mistral", Bias::kNever, false, false, false, Window::kEverywhere, 4096, 0, 1e4, 1e-6},
    {"MixtralForCausalLM", "mixtral", Bias::kNever, false, false, false, Window::kEverywhere, 0, 0, 1e6, 1e-5},
    {"Qwen2ForCausalLM", "qwen2", Bias::kAlways, false, false, false, Window::kUpperLayers, 4096, 0, 1e4, 1e-6},
    {"Qwen3ForCausalLM", "qwen3", Bias::kByConfig, true, false, true, Window::kUpperLayers, 4096, 128, 1e4, 1e-6},
    {"Qwen3MoeForCausalLM", "qwen3_moe", Bias::kByConfig, true, false, true, Window::kSwitched, 4096, 0, 1e4, 1e-6},
};

const Architecture& find_architecture(const JsonFields& fields) {
  const auto supported = [] { return fmt::format("which is not supported; supported are {}", fmt::join(supported_architectures(), ", ")); };
  const Architecture* by_name = nullptr;
  if (const json* names = fields.find("architectures"); names != nullptr && !(names->is_array() && names->empty())) {
    if (!names->is_array() || !names->front().is_string()) fields.bad("architectures", "it must be a list of names");
    const auto& name = names->front().get_ref<const std::string&>();
    by_name = std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const Architecture& a) { return name == a.name; });
    if (by_name == std::end(kArchitectures)) fields.not_supported("architectures", supported());
  }
  const std::optional<std::string> type = fields.string("model_type");
  if (!type) {
    if (by_name == nullptr) fields.bad("architectures", fmt::format("it must be one of {}", fmt::join(supported_architectures(), ", ")));
    return *by_name;
  }
  const Architecture* by_type =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [&](const Architecture& a) { return *type == a.model_type; });
  if (by_type == std::end(kArchitectures)) fields.not_supported("model_type", supported());
  if (by_name != nullptr && by_name != by_type) {
    fields.bad("model_type", fmt::format("but architectures is {}: its model_type is \"{}\"", by_name->name, by_name->model_type));
  }
  return *by_type;
}

/// Refuses what some model family has and this decoder does not do. A field is accepted where it has the value that switches it off.
void refuse_unsupported(const JsonFields& fields) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (fields.find(key) == nullptr) continue;
    const std::optional<JsonFields> quantization = fields.object(key);
    const json* method = quantization->find("quant_method");
    fail_param(ErrorKind::kNotSupported, key, "{}: {} asks for the quantisation method {}; quantised safetensors are not supported",
               fields.origin(), key, method == nullptr ? "(unnamed)" : brief(*method));
  }
  static const std::pair<const char*, json> kNeutral[] = {
      {"partial_rotary_factor", 1.0},
      {"attn_logit_softcapping", nullptr},
      {"attention_logit_softcapping", nullptr},
      {"final_logit_softcapping", nullptr},
      {"query_pre_attn_scalar", nullptr},
      {"attention_multiplier", nullptr},
      {"attention_chunk_size", nullptr},
      {"clip_qkv", nullptr},
      {"no_rope_layers", nullptr},
      {"logit_scale", 1.0},
      {"logits_scaling", 1.0},
      {"embedding_multiplier", 1.0},
      {"residual_multiplier", 1.0},
      {"alibi", false},
      {"is_encoder_decoder", false},
      {"add_cross_attention", false},
      {"use_bidirectional_attention", false},
      {"vision_config", nullptr},
      {"audio_config", nullptr},
      {"n_shared_experts", 0},
      {"num_shared_experts", 0},
      {"shared_expert_intermediate_size", 0},
      {"n_group", 1},
      {"topk_group", 1},
      {"routed_scaling_factor", 1.0},
      {"scoring_func", "softmax"},
  };
  for (const auto& [key, neutral] : kNeutral) {
    const json* value = fields.find(key);
    if (value == nullptr || *value == neutral) continue;
    fields.not_supported(key, neutral.is_null() ? "which is not supported" : fmt::format("only {} is supported", neutral.dump()));
  }
  if (const std::optional<std::string> activation = fields.string("hidden_act");
      activation && *activation != "silu" && *activation != "swish") {
    fields.not_supported("hidden_act", "only \"silu\" is supported");
  }
}

RopeConfig parse_rope(const JsonFields& fields, double default_theta, int64_t max_position) {
  const double tiny = std::numeric_limits<double>::min();
  RopeConfig rope;
  rope.theta = fields.number("rope_theta", 1.0, kMaxTheta).value_or(default_theta);

  // transformers 5 writes rope_parameters, transformers 4 rope_scaling beside rope_theta.
  const std::optional<JsonFields> scaling = fields.object(fields.find("rope_scaling") != nullptr ? "rope_scaling" : "rope_parameters");
  if (!scaling) return rope;
  const JsonFields& s = *scaling;
  rope.theta = s.number("rope_theta", 1.0, kMaxTheta).value_or(rope.theta);

  std::optional<std::string> type = s.string("rope_type");
  const char* type_key = type ? "rope_type" : "type";
  if (!type) type = s.string("type");
  if (!type && s.has("factor")) s.bad("rope_type", "but a factor is given");
  static constexpr std::string_view kKnown[] = {"rope_type",
                                                "type",
                                                "rope_theta",
                                                "factor",
                                                "low_freq_factor",
                                                "high_freq_factor",
                                                "original_max_position_embeddings",
                                                "attention_factor",
                                                "beta_fast",
                                                "beta_slow",
                                                "mscale",
                                                "mscale_all_dim",
                                                "truncate",
                                                "finetuned",
                                                "partial_rotary_factor"};

  if (!type || *type == "default") {
    rope.kind = RopeKind::kDefault;
  } else if (*type == "linear") {
    rope.kind = RopeKind::kLinear;
  } else if (*type == "llama3") {
    rope.kind = RopeKind::kLlama3;
  } else if (*type == "yarn") {
    rope.kind = RopeKind::kYarn;
  } else {
    s.not_supported(type_key, "supported are default, linear, llama3, yarn");
  }
  for (const std::string& key : s.keys()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) s.not_supported(key.c_str(), "which is not supported");
  }
  if (s.number("partial_rotary_factor", 0.0, 1.0).value_or(1.0) != 1.0) s.not_supported("partial_rotary_factor", "only 1.0 is supported");
  if (rope.kind == RopeKind::kDefault) return rope;

  rope.factor = s.required_number("factor", 1.0, kMaxFactor);
  if (rope.kind == RopeKind::kLlama3) {
    rope.low_freq_factor = s.required_number("low_freq_factor", tiny, kMaxFactor);
    rope.high_freq_factor = s.required_number("high_freq_factor", rope.low_freq_factor, kMaxFactor);
    rope.original_max_position = s.required_integer("original_max_position_embeddings", 1, limits::kPositions);
  } else if (rope.kind == RopeKind::kYarn) {
    rope.original_max_position = s.integer("original_max_position_embeddings", 1, limits::kPositions).value_or(max_position);
    // Zero means the default, as in the reference implementation.
    const auto or_default = [&](const char* key, double fallback) {
      const double value = s.number(key, 0.0, kMaxFactor).value_or(0.0);
      return value == 0.0 ? fallback : value;
    };
    rope.beta_fast = or_default("beta_fast", 32.0);
    rope.beta_slow = or_default("beta_slow", 1.0);
    if (rope.beta_fast < rope.beta_slow) s.bad("beta_fast", fmt::format("it must be at least beta_slow, {}", rope.beta_slow));
    rope.truncate = s.boolean("truncate").value_or(true);
    const double mscale = or_default("mscale", 0.0);
    const double mscale_all_dim = or_default("mscale_all_dim", 0.0);
    if (const std::optional<double> explicit_factor = s.number("attention_factor", tiny, kMaxFactor)) {
      rope.attention_factor = *explicit_factor;
    } else if (mscale != 0.0 && mscale_all_dim != 0.0) {
      rope.attention_factor = yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, mscale_all_dim);
    } else {
      rope.attention_factor = yarn_mscale(rope.factor, 1.0);
    }
  }
  return rope;
}

/// Sets the sliding window of every layer. `config.layers` has its final size.
void parse_windows(const JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  const auto read_window = [&] {
    if (!fields.has("sliding_window")) return architecture.default_window;
    return fields.integer("sliding_window", 1, limits::kPositions).value_or(0);
  };
  const bool switched = architecture.window == Window::kSwitched || architecture.window == Window::kUpperLayers;
  const bool enabled = switched ? fields.boolean("use_sliding_window").value_or(false) : architecture.window == Window::kEverywhere;
  const int64_t window = enabled ? read_window() : 0;

  const bool upper_only = architecture.window == Window::kUpperLayers;
  const int64_t first = upper_only ? fields.integer("max_window_layers", 0, std::numeric_limits<int32_t>::max()).value_or(28) : 0;
  for (int64_t i = first; i < config.num_layers; ++i) config.layers[static_cast<size_t>(i)].sliding_window = window;

  const json* types = fields.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != config.num_layers) {
    fields.bad("layer_types", fmt::format("it must be a list of num_hidden_layers = {} names", config.num_layers));
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const json& type = (*types)[i];
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention") {
      fail_param(ErrorKind::kNotSupported, "layer_types",
                 "{}: layer_types[{}] is {}; supported are \"full_attention\" and \"sliding_attention\"", fields.origin(), i, brief(type));
    }
    LayerConfig& layer = config.layers[i];
    if (upper_only && (!sliding || window > 0)) layer.sliding_window = sliding ? window : 0;
    if (sliding != (layer.sliding_window > 0)) {
      fail_param(ErrorKind::kBadModel, "layer_types", "{}: layer_types[{}] is {}, but the sliding window of the layer is {}",
                 fields.origin(), i, brief(type), layer.sliding_window == 0 ? "off" : std::to_string(layer.sliding_window));
    }
  }
}

void parse_experts(const JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  const std::string_view name = architecture.name;
  const bool mixtral = name == "MixtralForCausalLM";
  if (!mixtral && name != "Qwen3MoeForCausalLM") {
    for (const char* key : {"num_experts", "num_local_experts"}) {
      if (fields.integer(key, 0, limits::kExperts).value_or(0) > 1) fields.not_supported(key, fmt::format("which {} does not have", name));
    }
    return;
  }
  MoeConfig& moe = config.moe;
  const char* count_key = fields.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
  moe.num_experts = fields.required_integer(count_key, mixtral ? 1 : 0, limits::kExperts);
  moe.experts_per_token = fields.required_integer("num_experts_per_tok", 1, limits::kExperts);
  // Mixtral's router scales the kept weights to sum 1 without a switch, and its experts have the size of a dense MLP.
  moe.norm_topk_prob = mixtral || fields.boolean("norm_topk_prob").value_or(false);
  moe.moe_intermediate_size =
      mixtral ? config.intermediate_size : fields.required_integer("moe_intermediate_size", 1, limits::kIntermediateSize);

  const int64_t step = mixtral ? 1 : fields.integer("decoder_sparse_step", 1, limits::kLayers).value_or(1);
  for (int64_t i = 0; i < config.num_layers; ++i) config.layers[static_cast<size_t>(i)].sparse = moe.num_experts > 0 && (i + 1) % step == 0;
  if (const json* dense = mixtral ? nullptr : fields.find("mlp_only_layers")) {
    if (!dense->is_array()) fields.bad("mlp_only_layers", "it must be a list of layer numbers");
    for (const json& layer : *dense) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= config.layers.size()) {
        fields.bad("mlp_only_layers", fmt::format("each must be an integer from 0 to {}", config.num_layers - 1));
      }
      config.layers[layer.get<size_t>()].sparse = false;
    }
  }
}

DType parse_dtype(const JsonFields& fields) {
  const char* key = fields.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  std::string name = fields.string(key).value_or("bfloat16");
  if (name.starts_with("torch.")) name.erase(0, 6);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  fields.not_supported(key, "supported are float32, float16, bfloat16");
}

/// Adds the ids of a field that holds one id or a list of them.
void add_token_ids(const JsonFields& fields, const char* key, std::vector<int32_t>& ids) {
  const json* value = fields.find(key);
  if (value == nullptr) return;
  const auto add = [&](const json& id) {
    if (!id.is_number_integer() || (id.is_number_unsigned() ? id.get<uint64_t>() > uint64_t{limits::kTokenId} : id.get<int64_t>() < 0)) {
      fields.bad(key, "it must be a token id or a list of them");
    }
    ids.push_back(id.get<int32_t>());
  };
  if (value->is_array()) {
    for (const json& id : *value) add(id);
  } else {
    add(*value);
  }
}

void parse_generation(const JsonFields& fields, ModelConfig& config) {
  add_token_ids(fields, "eos_token_id", config.eos_token_ids);
  GenerationDefaults& defaults = config.generation;
  defaults.do_sample = fields.boolean("do_sample").value_or(false);
  defaults.temperature = fields.number("temperature", 0.0, 1e6);
  // Some files write -1 for "no limit", which is 0 here.
  defaults.top_k = fields.integer("top_k", -1, std::numeric_limits<int32_t>::max());
  if (defaults.top_k == -1) defaults.top_k = 0;
  defaults.top_p = fields.number("top_p", 0.0, 1.0);
  if (defaults.top_p == 0.0) fields.bad("top_p", "it must be above 0");
  defaults.min_p = fields.number("min_p", 0.0, 1.0);
  defaults.repetition_penalty = fields.number("repetition_penalty", 0.0, 1e6);
  if (defaults.repetition_penalty == 0.0) fields.bad("repetition_penalty", "it must be above 0");
}

}  // namespace

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

ModelConfig parse_model_config(std::string_view config_json, std::string_view generation_json, const std::string& origin) {
  const std::string config_origin = origin + "/config.json";
  const json document = parse_json(config_json, config_origin);
  const JsonFields fields(document, config_origin);
  const Architecture& architecture = find_architecture(fields);
  refuse_unsupported(fields);

  ModelConfig config;
  config.architecture = architecture.name;
  config.num_layers = fields.required_integer("num_hidden_layers", 1, limits::kLayers);
  config.hidden_size = fields.required_integer("hidden_size", 1, limits::kHiddenSize);
  config.num_heads = fields.required_integer("num_attention_heads", 1, limits::kHeads);
  config.num_kv_heads = fields.integer("num_key_value_heads", 1, limits::kHeads).value_or(config.num_heads);
  config.intermediate_size = fields.required_integer("intermediate_size", 1, limits::kIntermediateSize);
  config.vocab_size = fields.required_integer("vocab_size", 1, limits::kVocabSize);
  config.max_position_embeddings = fields.required_integer("max_position_embeddings", 1, limits::kPositions);
  config.rms_norm_eps = fields.number("rms_norm_eps", 0.0, 1.0).value_or(architecture.default_rms_norm_eps);

  if (const std::optional<int64_t> head_dim = fields.integer("head_dim", 2, limits::kHeadDim)) {
    config.head_dim = *head_dim;
  } else if (architecture.default_head_dim != 0 && !fields.has("head_dim")) {
    config.head_dim = architecture.default_head_dim;
  } else {
    config.head_dim = config.hidden_size / config.num_heads;
    if (config.hidden_size % config.num_heads != 0 || config.head_dim > limits::kHeadDim) {
      fields.bad("hidden_size", fmt::format("without head_dim it must be a multiple of num_attention_heads = {}, at most {} times it",
                                            config.num_heads, limits::kHeadDim));
    }
  }

  const bool attention_bias = fields.boolean("attention_bias").value_or(false);
  if (attention_bias && architecture.qkv_bias == Bias::kNever) {
    fields.not_supported("attention_bias", fmt::format("which {} does not have", architecture.name));
  }
  config.attention_bias = architecture.qkv_bias == Bias::kAlways || attention_bias;
  config.attention_output_bias = architecture.output_bias_by_config && attention_bias;
  config.mlp_bias = fields.boolean("mlp_bias").value_or(false);
  if (config.mlp_bias && !architecture.mlp_bias_by_config) {
    fields.not_supported("mlp_bias", fmt::format("which {} does not have", architecture.name));
  }
  config.qk_norm = architecture.qk_norm;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);

  config.rope = parse_rope(fields, architecture.default_theta, config.max_position_embeddings);
  config.layers.resize(static_cast<size_t>(config.num_layers));
  parse_windows(fields, architecture, config);
  parse_experts(fields, architecture, config);
  config.dtype = parse_dtype(fields);

  add_token_ids(fields, "eos_token_id", config.eos_token_ids);
  if (const std::optional<int64_t> bos = fields.integer("bos_token_id", 0, limits::kTokenId))
    config.bos_token_id = static_cast<int32_t>(*bos);
  if (!generation_json.empty()) {
    const std::string generation_origin = origin + "/generation_config.json";
    const json generation = parse_json(generation_json, generation_origin);
    parse_generation(JsonFields(generation, generation_origin), config);
  }
  std::sort(config.eos_token_ids.begin(), config.eos_token_ids.end());
  config.eos_token_ids.erase(std::unique(config.eos_token_ids.begin(), config.eos_token_ids.end()), config.eos_token_ids.end());

  validate(config, config_origin);
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "config.json";
  if (!exists_or_dangles(config_path)) {
    fail(ErrorKind::kBadModel, "{} has no config.json: {}", folder.string(), describe_folder(folder));
  }
  const std::filesystem::path generation_path = folder / "generation_config.json";
  const std::string generation = exists_or_dangles(generation_path) ? read_text_file(generation_path, kMaxConfigBytes) : "";
  return parse_model_config(read_text_file(config_path, kMaxConfigBytes), generation, folder.string());
}

}  // namespace minisgl
