// Weights of a folder in Hugging Face layout. A safetensors file is an 8-byte little-endian header length, a JSON header
// {name: {"dtype", "shape", "data_offsets": [begin, end]}}, and the data that the offsets count from.

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <system_error>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_text.h"
#include "checkpoint/folder_listing.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/storage_type.h"

namespace minisgl {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kLengthBytes = 8;
// Headers of real files stay below 1 MiB; the format itself allows 100 MB, which would cost gigabytes as a parsed document.
constexpr size_t kMaxHeaderBytes = size_t{32} << 20;
constexpr size_t kMaxIndexBytes = size_t{32} << 20;
constexpr size_t kMaxNameBytes = 1024;

/// A list of unsigned integers, each at most `limit`.
std::vector<uint64_t> unsigned_list(const JsonFields& fields, const char* key, size_t min_size, size_t max_size, uint64_t limit) {
  const json* list = fields.find(key);
  if (list == nullptr || !list->is_array() || list->size() < min_size || list->size() > max_size) {
    fields.bad(key, fmt::format("it must be a list of {} to {} integers", min_size, max_size));
  }
  std::vector<uint64_t> values;
  for (const json& value : *list) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > limit)
      fields.bad(key, fmt::format("each must be an integer from 0 to {}", limit));
    values.push_back(value.get<uint64_t>());
  }
  return values;
}

Shape to_shape(const std::vector<uint64_t>& dims) {
  const auto at = [&](size_t i) { return static_cast<int64_t>(dims[i]); };
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {at(0)};
    case 2:
      return {at(0), at(1)};
    case 3:
      return {at(0), at(1), at(2)};
    default:
      return {at(0), at(1), at(2), at(3)};
  }
}

StoredTensor read_entry(const std::string& name, const json& entry, const std::string& path, size_t data_begin, size_t data_bytes) {
  if (!entry.is_object())
    fail(ErrorKind::kBadModel, "{}: tensor {} must be described by a JSON object, not by {}", path, name, brief(entry));
  const JsonFields fields(entry, path, "tensor " + name + ": ");
  const std::optional<std::string> dtype = fields.string("dtype");
  const StorageType* type = dtype ? safetensors_storage_type(*dtype) : nullptr;
  if (type == nullptr) fields.bad("dtype", "which is no dtype of the format");

  const std::vector<uint64_t> dims = unsigned_list(fields, "shape", 0, Shape::kMaxRank, data_bytes);
  // Bounded by the file's size after every step, so that the product cannot overflow.
  uint64_t bytes = type->block_bytes;
  for (const uint64_t dim : dims) {
    if (dim == 0) fields.bad("shape", "an empty tensor is of no use");
    if (dim > data_bytes / bytes)
      fields.bad("shape", fmt::format("which needs more than the {} bytes of data in the file: it is cut off or damaged", data_bytes));
    bytes *= dim;
  }
  const std::vector<uint64_t> offsets = unsigned_list(fields, "data_offsets", 2, 2, std::numeric_limits<int64_t>::max());
  if (offsets[0] > offsets[1]) fields.bad("data_offsets", "the end lies before the start");
  if (offsets[1] > data_bytes) {
    fields.bad("data_offsets", fmt::format("outside the {} bytes of data in the file: it is cut off or damaged", data_bytes));
  }
  if (offsets[1] - offsets[0] != bytes) {
    fields.bad("data_offsets", fmt::format("but shape {} of {} needs {} bytes", to_shape(dims).to_string(), *dtype, bytes));
  }
  return {{name, to_shape(dims), type->name, bytes}, type, 0, data_begin + offsets[0], 0};
}

/// Appends the tensors of a safetensors file, in the order of their data.
void read_directory(const MappedFile& file, size_t file_index, std::vector<StoredTensor>& tensors) {
  const std::string path = file.path().string();
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size_bytes());
  refuse_lfs_pointer(text, path);
  if (text.size() < kLengthBytes) fail(ErrorKind::kBadModel, "{} is no safetensors file: it has only {} bytes", path, text.size());
  uint64_t header_bytes;
  std::memcpy(&header_bytes, text.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    fail(ErrorKind::kBadModel, "{} is no safetensors file: its header would have {} bytes, at most {} are accepted", path, header_bytes,
         kMaxHeaderBytes);
  }
  if (header_bytes > text.size() - kLengthBytes) {
    fail(ErrorKind::kBadModel, "{} is cut off: its header has {} bytes, {} are left", path, header_bytes, text.size() - kLengthBytes);
  }
  const size_t data_begin = kLengthBytes + header_bytes;
  const json header = parse_json(text.substr(kLengthBytes, header_bytes), path + " (header)");
  if (!header.is_object()) fail(ErrorKind::kBadModel, "{}: the header must be a JSON object, it is {}", path, brief(header));

  const size_t first = tensors.size();
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") continue;
    check_name(item.key(), kMaxNameBytes, "a tensor name", path);
    tensors.push_back(read_entry(item.key(), item.value(), path, data_begin, text.size() - data_begin));
    tensors.back().file = file_index;
  }
  const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(first);
  std::sort(begin, tensors.end(), [](const StoredTensor& a, const StoredTensor& b) { return a.offset_bytes < b.offset_bytes; });
  for (size_t i = first + 1; i < tensors.size(); ++i) {
    const StoredTensor& before = tensors[i - 1];
    if (tensors[i].offset_bytes < before.offset_bytes + before.info.stored_bytes) {
      fail(ErrorKind::kBadModel, "{}: tensors {} and {} overlap", path, before.info.name, tensors[i].info.name);
    }
  }
}

/// The shards that an index names, sorted, after checking that each is there and that each tensor is in the shard the index says.
std::unique_ptr<Checkpoint> open_sharded(const fs::path& folder) {
  const fs::path index_path = folder / kIndexFile;
  const json index = parse_json(read_text_file(index_path, kMaxIndexBytes), index_path.string());
  const std::optional<JsonFields> weight_map = JsonFields(index, index_path.string()).object("weight_map");
  if (!weight_map) fail_param(ErrorKind::kBadModel, "weight_map", "{}: weight_map is missing", index_path.string());

  std::set<std::string> shards;
  for (const std::string& tensor : weight_map->keys()) {
    const std::string shard = weight_map->string(tensor.c_str()).value_or("");
    if (shard.empty() || shard == ".." || shard.find('/') != std::string::npos || shard.find('\0') != std::string::npos) {
      weight_map->bad(tensor.c_str(), "it must be the name of a file in the same folder");
    }
    shards.insert(shard);
  }
  std::vector<MappedFile> files;
  std::vector<StoredTensor> tensors;
  for (const std::string& shard : shards) {
    if (!exists_or_dangles(folder / shard)) {
      fail(ErrorKind::kBadModel, "{} is missing, but {} names it: the download is incomplete", (folder / shard).string(), kIndexFile);
    }
    files.emplace_back(folder / shard);
    read_directory(files.back(), files.size() - 1, tensors);
  }
  auto checkpoint = std::make_unique<Checkpoint>(folder.string(), std::move(files), std::move(tensors));
  for (const std::string& tensor : weight_map->keys()) {
    if (!checkpoint->contains(tensor)) weight_map->bad(tensor.c_str(), "but no shard holds that tensor");
  }
  return checkpoint;
}

[[noreturn]] void fail_no_weights(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path name = at->path().filename();
    if (name.extension() == ".bin" || name.extension() == ".pth" || name.extension() == ".pt") {
      fail(ErrorKind::kNotSupported, "{} has its weights in {}, which is not supported: a pickle can run code; convert it to {}",
           folder.string(), name.string(), kSingleFile);
    }
    if (name.extension() == ".gguf") {
      fail(ErrorKind::kBadModel, "{} has no {}; to load the GGUF file in it, pass {}", folder.string(), kSingleFile, at->path().string());
    }
  }
  fail(ErrorKind::kBadModel, "{} has neither {} nor {}: {}", folder.string(), kSingleFile, kIndexFile, describe_folder(folder));
}

}  // namespace

std::unique_ptr<Checkpoint> open_safetensors_checkpoint(const fs::path& folder) {
  if (exists_or_dangles(folder / kSingleFile)) {
    std::vector<MappedFile> files;
    files.emplace_back(folder / kSingleFile);
    std::vector<StoredTensor> tensors;
    read_directory(files.front(), 0, tensors);
    return std::make_unique<Checkpoint>(folder.string(), std::move(files), std::move(tensors));
  }
  if (exists_or_dangles(folder / kIndexFile)) return open_sharded(folder);
  fail_no_weights(folder);
}

}  // namespace minisgl
