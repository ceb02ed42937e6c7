#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor.h"

namespace minisgl {

/// An entry of a GGUF file's tensor directory.
struct GgufTensor {
  std::string name;
  /// Outermost first, as everywhere in this project (the file has the innermost first).
  Shape shape;
  /// The file's number of the storage type: see gguf_blocks.h.
  uint32_t type = 0;
  /// From the start of the file. The bytes are inside the file if the type is known; for an unknown type only the start is checked.
  size_t offset_bytes = 0;
};

/// The metadata and tensor directory of a GGUF file, version 2 or 3, little-endian, memory-mapped.
///
/// The constructor walks the whole header once and refuses a file whose counts, lengths, types, alignment or offsets do not fit in it.
/// Values stay in the mapping; accessors decode on request, so an open file costs little memory. Thread safe after construction.
class GgufFile {
 public:
  /// Throws Error(kNotFound or kIo) if the file cannot be mapped, Error(kBadModel) if it is malformed, Error(kNotSupported) for another
  /// version or byte order.
  explicit GgufFile(const std::filesystem::path& path);

  /// True if the file at `path` begins with GGUF's magic. False if it cannot be read.
  static bool has_magic(const std::filesystem::path& path);

  const MappedFile& file() const { return file_; }
  const std::filesystem::path& path() const { return file_.path(); }
  /// Gives the mapping away; only tensors() is of use afterwards.
  MappedFile take_file() && { return std::move(file_); }

  bool contains(std::string_view key) const;
  /// In the file's order.
  const std::vector<std::string>& keys() const { return keys_; }

  // Typed access. Each returns nothing if the key is absent and throws Error(kBadModel), naming file, key and type, if it holds another
  // type. Integers accept every integer type whose value fits.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;
  /// Elements of an array value, whatever its element type; nothing if the key is absent.
  std::optional<uint64_t> array_size(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }

 private:
  enum class ValueType : uint32_t;
  struct Value {
    ValueType type;
    ValueType element_type;  // of an array
    uint64_t count;          // of an array; else 1
    size_t offset_bytes;     // of the first element
  };
  class Reader;

  void parse();
  const Value* find(std::string_view key) const;
  const Value* find_array(std::string_view key) const;
  Value read_value(Reader& reader, const std::string& key) const;
  int64_t integer_at(ValueType type, size_t offset_bytes, std::string_view key) const;

  MappedFile file_;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace minisgl
