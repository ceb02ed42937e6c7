#include "checkpoint/checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/model_path.h"
#include "checkpoint/storage_type.h"

namespace minisgl {

namespace {

int64_t row_count_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[0];
}

/// Where row `row` in Hugging Face's order is in a file that interleaves the halves of each head.
int64_t interleaved_row(int64_t row, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  const int64_t within = row % head_dim;
  return row - within + 2 * (within % half) + within / half;
}

}  // namespace

Checkpoint::Checkpoint(std::string source, std::vector<MappedFile> files, std::vector<StoredTensor> tensors)
    : source_(std::move(source)), files_(std::move(files)), tensors_(std::move(tensors)), used_(tensors_.size(), false) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].info.name, i).second)
      fail(ErrorKind::kBadModel, "{}: tensor {} appears twice", source_, tensors_[i].info.name);
    total_bytes_ += tensors_[i].info.stored_bytes;
  }
}

const StoredTensor& Checkpoint::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  if (at == index_.end()) fail_param(ErrorKind::kBadModel, std::string(name), "{}: the tensor {} is missing", source_, name);
  return tensors_[at->second];
}

bool Checkpoint::contains(std::string_view name) const {
  return index_.contains(std::string(name));
}

const TensorInfo& Checkpoint::info(std::string_view name) const {
  return find(name).info;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> result;
  result.reserve(tensors_.size());
  for (const StoredTensor& tensor : tensors_) result.emplace_back(tensor.info.name);
  return result;
}

const TensorInfo& Checkpoint::claim(std::string_view name, const Shape& expected) {
  const StoredTensor& tensor = find(name);
  if (tensor.info.shape != expected) {
    fail_param(ErrorKind::kBadModel, std::string(name), "{}: the tensor {} has shape {}, the configuration asks for {}", source_, name,
               tensor.info.shape.to_string(), expected.to_string());
  }
  mark_used(name);
  return tensor.info;
}

void Checkpoint::mark_used(std::string_view name) {
  const auto at = index_.find(std::string(name));
  if (at != index_.end()) used_[at->second] = true;
}

std::vector<std::string_view> Checkpoint::unused() const {
  std::vector<std::string_view> result;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!used_[i]) result.emplace_back(tensors_[i].info.name);
  }
  return result;
}

void Checkpoint::read_rows(std::string_view name, int64_t row_begin, int64_t row_count, DType out_dtype, void* out) const {
  const StoredTensor& tensor = find(name);
  const StorageType& type = *tensor.type;
  const int64_t rows = row_count_of(tensor.info.shape);
  const auto row_elements = static_cast<size_t>(tensor.info.shape.elements() / rows);
  if (row_begin < 0 || row_count < 0 || row_begin > rows - row_count) {
    fail_param(ErrorKind::kBadModel, std::string(name), "{}: {} rows from row {} are asked of the tensor {}, which has {}", source_,
               row_count, row_begin, name, rows);
  }
  if (type.to_float == nullptr || row_elements % type.block_elements != 0) {
    fail_param(ErrorKind::kNotSupported, std::string(name),
               "{}: the tensor {} of shape {} is stored as {}, which cannot be read; supported are {}", source_, name,
               tensor.info.shape.to_string(), tensor.info.stored_type, gguf_readable_types());
  }
  if (row_count == 0) return;

  const size_t row_bytes = row_elements / type.block_elements * type.block_bytes;
  const MappedFile& file = files_[tensor.file];
  const std::byte* begin = file.bytes().data() + tensor.offset_bytes;
  int64_t first = row_begin;
  int64_t last = row_begin + row_count;
  const int64_t head_dim = tensor.interleaved_head_dim;
  if (head_dim != 0) {
    // A row may lie anywhere in its head.
    first = first / head_dim * head_dim;
    last = (last + head_dim - 1) / head_dim * head_dim;
  }
  const size_t span_offset = tensor.offset_bytes + static_cast<size_t>(first) * row_bytes;
  const size_t span_bytes = static_cast<size_t>(last - first) * row_bytes;
  file.prefetch(span_offset, span_bytes);
  if (head_dim == 0) {
    convert(type, begin + static_cast<size_t>(row_begin) * row_bytes, static_cast<size_t>(row_count) * row_elements, out_dtype, out);
  } else {
    auto* target = static_cast<std::byte*>(out);
    for (int64_t row = row_begin; row < row_begin + row_count; ++row, target += row_elements * dtype_size(out_dtype)) {
      convert(type, begin + static_cast<size_t>(interleaved_row(row, head_dim)) * row_bytes, row_elements, out_dtype, target);
    }
  }
  file.drop(span_offset, span_bytes);
}

std::unique_ptr<Checkpoint> open_checkpoint(const ModelPath& model) {
  switch (model.format) {
    case ModelFormat::kHuggingFaceFolder:
      return open_safetensors_checkpoint(model.path);
    case ModelFormat::kGguf:
      return open_gguf_checkpoint(model.path);
    case ModelFormat::kShape:
      break;
  }
  fail_param(ErrorKind::kUsage, "model", "shape:{} is a configuration without weights", model.shape);
}

}  // namespace minisgl
