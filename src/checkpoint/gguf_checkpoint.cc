// Weights of a GGUF file under Hugging Face's names.

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_blocks.h"

namespace minisgl {

namespace {

struct Translation {
  std::string_view gguf;
  std::string_view hugging_face;
};

constexpr Translation kModelNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

/// Of the modules of a layer, without "blk.N." and ".weight" or ".bias".
constexpr Translation kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

/// A tensor of a layer: "blk.3.attn_q.weight".
struct LayerTensor {
  std::string_view layer;
  std::string_view module;
  std::string_view parameter;
};

std::optional<LayerTensor> split_layer_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t first = name.find('.');
  const size_t last = name.rfind('.');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string_view layer = name.substr(0, first);
  const bool digits = !layer.empty() && std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || (layer.size() > 1 && layer.front() == '0')) return std::nullopt;
  return LayerTensor{layer, name.substr(first + 1, last - first - 1), name.substr(last + 1)};
}

std::string translate(std::string_view name) {
  const auto find = [](const auto& table, std::string_view key) {
    return std::find_if(std::begin(table), std::end(table), [&](const Translation& entry) { return entry.gguf == key; });
  };
  if (const auto* entry = find(kModelNames, name); entry != std::end(kModelNames)) return std::string(entry->hugging_face);
  if (const std::optional<LayerTensor> tensor = split_layer_name(name)) {
    const auto* entry = find(kLayerNames, tensor->module);
    if (entry != std::end(kLayerNames)) return fmt::format("model.layers.{}.{}.{}", tensor->layer, entry->hugging_face, tensor->parameter);
  }
  return std::string(name);
}

/// The head dimension of the tensors whose rows the file interleaves; 0 for the others.
int64_t interleaved_head_dim(const GgufFile& file, const GgufTensor& tensor) {
  const std::optional<LayerTensor> name = split_layer_name(tensor.name);
  if (!name || (name->module != "attn_q" && name->module != "attn_k")) return 0;
  std::optional<int64_t> heads = name->module == "attn_k" ? file.integer("llama.attention.head_count_kv") : std::nullopt;
  if (!heads) heads = file.integer("llama.attention.head_count");
  const int64_t rows = tensor.shape[0];
  if (!heads || *heads < 1 || rows % *heads != 0 || rows / *heads % 2 != 0) {
    fail(ErrorKind::kBadModel, "{}: the {} rows of tensor {} are no whole number of heads of an even size ({} heads)", file.path().string(),
         rows, tensor.name, heads.value_or(0));
  }
  return rows / *heads;
}

}  // namespace

std::unique_ptr<Checkpoint> open_gguf_checkpoint(const std::filesystem::path& path) {
  GgufFile file(path);
  const bool interleaved = file.string("general.architecture") == "llama";
  std::vector<StoredTensor> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    const StorageType* type = gguf_storage_type(tensor.type);
    if (type == nullptr) {
      fail_param(ErrorKind::kNotSupported, tensor.name, "{}: tensor {} is stored as {} (type {}), which cannot be read; supported are {}",
                 path.string(), tensor.name, gguf_type_name(tensor.type), tensor.type, gguf_readable_types());
    }
    const size_t bytes = static_cast<size_t>(tensor.shape.elements()) / type->block_elements * type->block_bytes;
    tensors.push_back({{translate(tensor.name), tensor.shape, type->name, bytes},
                       type,
                       0,
                       tensor.offset_bytes,
                       interleaved ? interleaved_head_dim(file, tensor) : 0});
  }
  std::vector<MappedFile> files;
  files.push_back(std::move(file).take_file());
  return std::make_unique<Checkpoint>(path.string(), std::move(files), std::move(tensors));
}

}  // namespace minisgl
