#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace minisgl {

class GgufFile;
struct ModelPath;

enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn };

/// "default", "linear", "llama3", "yarn".
const char* rope_kind_name(RopeKind kind);

/// Rotary position embedding over the whole head. Every number is resolved: a kind that does not use a field leaves its default.
/// The frequency of pair i, before scaling, is theta^(-2 i / head_dim).
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  /// kLinear, kLlama3, kYarn: how far the context is stretched.
  double factor = 1.0;
  /// kLlama3: the borders of the blend, in wavelengths per original context.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  /// kLlama3, kYarn: the context of the pre-training, in tokens.
  int64_t original_max_position = 0;
  /// kYarn: multiplies both cosine and sine. As written, or mscale(factor, mscale) / mscale(factor, mscale_all_dim) where both are set, or
  /// 0.1 ln(factor) + 1 (1 for a factor <= 1).
  double attention_factor = 1.0;
  /// kYarn: rotations per original context at which the ramp ends and starts; `truncate` rounds the ramp's ends to whole dimensions.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

/// What a decoder layer is, beyond what all layers share.
struct LayerConfig {
  /// A query at position p sees keys in (p - sliding_window, p]; 0: all of [0, p].
  int64_t sliding_window = 0;
  /// The MLP is a mixture of experts.
  bool sparse = false;

  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

/// Mixture of experts; num_experts 0: a dense model. The router takes a softmax over all experts and keeps the highest
/// `experts_per_token`; `norm_topk_prob` scales those to sum 1.
struct MoeConfig {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = false;

  friend bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

/// Sampling defaults of generation_config.json. They apply only with do_sample; unset fields leave the caller's default.
struct GenerationDefaults {
  bool do_sample = false;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;

  friend bool operator==(const GenerationDefaults&, const GenerationDefaults&) = default;
};

/// A model, as a plain value: the switches of the one decoder. Whoever holds one may rely on what validate() checks: sizes are positive
/// and bounded so that products of any three fit in int64, heads divide, head_dim is even, layers.size() == num_layers.
struct ModelConfig {
  /// The Hugging Face class, for example "Qwen3ForCausalLM". A GGUF's architecture is translated to it.
  std::string architecture;

  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  /// Of the dense MLP. A model whose layers are all sparse may carry any value.
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  /// The context length as the file has it, never multiplied by a rope factor.
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;

  bool attention_bias = false;         ///< q, k and v projections have biases
  bool attention_output_bias = false;  ///< the o projection has a bias
  bool mlp_bias = false;               ///< gate, up and down projections have biases
  bool qk_norm = false;                ///< RMSNorm over each head of q and k before RoPE
  bool tie_word_embeddings = false;    ///< the head is the embedding matrix

  RopeConfig rope;
  MoeConfig moe;
  std::vector<LayerConfig> layers;

  /// The type the weights are stored in; bfloat16 for a quantised file.
  DType dtype = DType::kBFloat16;

  /// Sorted, without duplicates: the union of every place the files declare one. May be empty.
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  GenerationDefaults generation;

  bool has_sparse_layers() const;
  bool has_sliding_window() const;
  /// Elements of all weights, tied embeddings counted once.
  int64_t parameter_count() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// The architectures that load, as Hugging Face names them.
std::vector<std::string_view> supported_architectures();

/// Reads the configuration of whatever the path is. Throws Error(kBadModel) for a malformed, missing or inconsistent value,
/// Error(kNotSupported) for one that asks for something this engine does not do; both name the file, the field and the value.
ModelConfig load_model_config(const ModelPath& model);

/// From `folder`/config.json and, where present, generation_config.json.
ModelConfig load_model_config(const std::filesystem::path& folder);

/// From the metadata of a GGUF file.
ModelConfig load_model_config(const GgufFile& file);

/// From JSON text in the form of config.json and generation_config.json (may be empty). `origin` names the source in messages.
ModelConfig parse_model_config(std::string_view config_json, std::string_view generation_json, const std::string& origin);

/// Built-in configurations for `shape:NAME`, in alphabetical order.
std::vector<std::string_view> shape_names();

/// The configuration of a built-in shape. Throws Error(kNotFound) that lists the names.
ModelConfig load_shape_config(std::string_view name);

}  // namespace minisgl
