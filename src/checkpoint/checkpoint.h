#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor.h"

namespace minisgl {

struct ModelPath;
struct StorageType;

/// A weight as a file stores it.
struct TensorInfo {
  /// Hugging Face's name, for a GGUF file too: "model.layers.3.self_attn.q_proj.weight".
  std::string name;
  /// Outermost first: [out_features, in_features] for a linear layer.
  Shape shape;
  /// "F32", "BF16", "Q8_0", ... as the format names it. A type that cannot be read is found out by read_rows(), not on opening.
  std::string stored_type;
  size_t stored_bytes = 0;
};

/// A tensor and where its bytes are. Made by the readers of the file formats; the rest of the program sees TensorInfo.
struct StoredTensor {
  TensorInfo info;
  const StorageType* type = nullptr;
  size_t file = 0;
  size_t offset_bytes = 0;
  /// GGUF's "llama" files keep the two halves of each head of the q and k projections interleaved: row 2 i + t of a head is row
  /// t head_dim / 2 + i in Hugging Face's order. Here the head dimension of such a tensor; 0: rows are in order.
  int64_t interleaved_head_dim = 0;
};

/// The weights of a model, memory-mapped, by Hugging Face names. One object per load: it also keeps account of what was claimed, so that
/// a loader can insist that every expected tensor is there and nothing is left over.
///
/// Opening reads and checks only the files' directories: each tensor's bytes lie inside its file, agree with shape and type, and overlap no
/// other's. claim() and mark_used() are for one thread; the const members, read_rows() included, may be called from several at once.
class Checkpoint {
 public:
  /// For the readers below. The tensors' places have been checked. Throws Error(kBadModel) for a name that appears twice.
  Checkpoint(std::string source, std::vector<MappedFile> files, std::vector<StoredTensor> tensors);

  bool contains(std::string_view name) const;
  /// Throws Error(kBadModel) if there is no such tensor.
  const TensorInfo& info(std::string_view name) const;
  /// In the order of the files.
  std::vector<std::string_view> names() const;
  /// Of all tensors, as stored: the measure of a load's progress.
  size_t total_bytes() const { return total_bytes_; }
  /// The folder or file, for messages.
  const std::string& source() const { return source_; }

  /// Marks a tensor as used and returns it. Throws Error(kBadModel) if it is missing or has another shape than `expected`.
  const TensorInfo& claim(std::string_view name, const Shape& expected);
  /// Marks a tensor that the model knows and does not need; no error if it is absent.
  void mark_used(std::string_view name);
  /// What is neither claimed nor marked, in the order of names().
  std::vector<std::string_view> unused() const;

  /// Converts rows [row_begin, row_begin + row_count) of the outermost dimension to `out_dtype` (kFloat32 or kBFloat16, round to nearest
  /// even), contiguous at `out`: row_count * (elements / shape[0]) values. A row of a vector is one element. The rows' pages then leave
  /// the resident set, so a load needs memory only for what it is reading. Throws Error(kBadModel) for an unknown name or a range outside
  /// the tensor, Error(kNotSupported) for a stored type that cannot be converted.
  void read_rows(std::string_view name, int64_t row_begin, int64_t row_count, DType out_dtype, void* out) const;

 private:
  const StoredTensor& find(std::string_view name) const;

  std::string source_;
  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::vector<bool> used_;
  std::unordered_map<std::string, size_t> index_;
  size_t total_bytes_ = 0;
};

/// Opens the weights of a folder (model.safetensors, or the shards of model.safetensors.index.json) or of a GGUF file. Throws
/// Error(kBadModel, kNotFound, kIo or kNotSupported) with the file at fault; Error(kUsage) for a shape, which has no weights.
std::unique_ptr<Checkpoint> open_checkpoint(const ModelPath& model);

/// The same for a folder and for a GGUF file. A GGUF's tensor names are translated ("blk.3.attn_q.weight" to
/// "model.layers.3.self_attn.q_proj.weight"); a name without a translation stays as it is.
std::unique_ptr<Checkpoint> open_safetensors_checkpoint(const std::filesystem::path& folder);
std::unique_ptr<Checkpoint> open_gguf_checkpoint(const std::filesystem::path& file);

}  // namespace minisgl
