#include "checkpoint/model_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config_limits.h"
#include "checkpoint/model_path.h"
#include "checkpoint/shapes.h"

namespace minisgl {

const char* rope_kind_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kYarn:
      return "yarn";
  }
  return "unknown";
}

bool ModelConfig::has_sparse_layers() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& layer) { return layer.sparse; });
}

bool ModelConfig::has_sliding_window() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& layer) { return layer.sliding_window > 0; });
}

int64_t ModelConfig::parameter_count() const {
  const int64_t q_size = num_heads * head_dim;
  const int64_t kv_size = num_kv_heads * head_dim;
  int64_t attention = hidden_size * (2 * q_size + 2 * kv_size) + 2 * hidden_size;
  if (attention_bias) attention += q_size + 2 * kv_size;
  if (attention_output_bias) attention += hidden_size;
  if (qk_norm) attention += 2 * head_dim;
  int64_t dense = 3 * hidden_size * intermediate_size;
  if (mlp_bias) dense += 2 * intermediate_size + hidden_size;
  // The largest term, 3 * 2^12 experts * 2^18 * 2^20, stays below 2^52; 2^10 layers of it below 2^62.
  const int64_t sparse = moe.num_experts * (3 * hidden_size * moe.moe_intermediate_size + hidden_size);
  int64_t total = (tie_word_embeddings ? 1 : 2) * vocab_size * hidden_size + hidden_size;
  for (const LayerConfig& layer : layers) total += attention + (layer.sparse ? sparse : dense);
  return total;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void validate(const ModelConfig& config, const std::string& origin) {
  if (config.num_heads % config.num_kv_heads != 0) {
    fail(ErrorKind::kBadModel, "{}: {} attention heads cannot be shared by {} key-value heads: the first must be a multiple of the second",
         origin, config.num_heads, config.num_kv_heads);
  }
  if (config.head_dim % 2 != 0) fail(ErrorKind::kBadModel, "{}: head_dim is {}, it must be even", origin, config.head_dim);
  MINISGL_CHECK(static_cast<int64_t>(config.layers.size()) == config.num_layers, "{} layers, {} described", config.num_layers,
                config.layers.size());
  if (config.has_sparse_layers() && (config.moe.experts_per_token < 1 || config.moe.experts_per_token > config.moe.num_experts)) {
    fail(ErrorKind::kBadModel, "{}: {} experts per token of {} experts: allowed is 1 to {}", origin, config.moe.experts_per_token,
         config.moe.num_experts, config.moe.num_experts);
  }
  const int64_t parameters = config.parameter_count();
  if (parameters > limits::kParameters) {
    fail(ErrorKind::kBadModel, "{}: the sizes amount to {} parameters; at most {} are accepted", origin, parameters, limits::kParameters);
  }
}

std::vector<std::string_view> shape_names() {
  std::vector<std::string_view> names;
  for (const NamedShape& shape : named_shapes()) names.push_back(shape.name);
  return names;
}

ModelConfig load_shape_config(std::string_view name) {
  for (const NamedShape& shape : named_shapes()) {
    if (shape.name == name) return parse_model_config(shape.config_json, "", fmt::format("shape:{}", name));
  }
  fail_param(ErrorKind::kNotFound, "model", "there is no shape \"{}\"; there are {}", name, fmt::join(shape_names(), ", "));
}

ModelConfig load_model_config(const ModelPath& model) {
  switch (model.format) {
    case ModelFormat::kHuggingFaceFolder:
      return load_model_config(model.path);
    case ModelFormat::kGguf:
      return load_model_config(GgufFile(model.path));
    case ModelFormat::kShape:
      return load_shape_config(model.shape);
  }
  MINISGL_CHECK(false, "model format {}", static_cast<int>(model.format));
  return {};
}

}  // namespace minisgl
