#pragma once

// Builders of small model files for tests. They write what they are told, also when it is wrong: every field that a bad file may get wrong
// can be set by hand.

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

namespace minisgl::test {

/// The bytes of a value or of the elements of a vector, little-endian.
template <typename T>
std::string bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

/// A safetensors file.
class SafetensorsWriter {
 public:
  /// Appends a tensor; `data` is what the file stores.
  SafetensorsWriter& add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape, const std::string& data) {
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + data.size()}}};
    data_ += data;
    return *this;
  }
  SafetensorsWriter& add(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    return add(name, "F32", shape, bytes_of(values));
  }

  std::string bytes() const { return with_header(header.dump()); }
  /// With other header text.
  std::string with_header(const std::string& text) const { return bytes_of(static_cast<uint64_t>(text.size())) + text + data_; }

  /// May be changed before bytes().
  nlohmann::json header = nlohmann::json::object();

 private:
  std::string data_;
};

/// A GGUF file, version 3.
class GgufWriter {
 public:
  enum Type : uint32_t { kUInt8, kInt8, kUInt16, kInt16, kUInt32, kInt32, kFloat32, kBool, kString, kArray, kUInt64, kInt64, kFloat64 };

  static std::string text(std::string_view value) { return bytes_of(static_cast<uint64_t>(value.size())) + std::string(value); }

  /// A metadata entry with `payload` as its value's bytes.
  GgufWriter& raw(std::string_view key, uint32_t type, const std::string& payload) {
    metadata_ += text(key) + bytes_of(type) + payload;
    ++key_count;
    return *this;
  }
  GgufWriter& set(std::string_view key, uint32_t value) { return raw(key, kUInt32, bytes_of(value)); }
  GgufWriter& set(std::string_view key, float value) { return raw(key, kFloat32, bytes_of(value)); }
  GgufWriter& set(std::string_view key, bool value) { return raw(key, kBool, bytes_of(static_cast<uint8_t>(value))); }
  GgufWriter& set(std::string_view key, std::string_view value) { return raw(key, kString, text(value)); }
  GgufWriter& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  GgufWriter& set(std::string_view key, const std::vector<std::string>& values) {
    std::string payload = bytes_of(uint32_t{kString}) + bytes_of(static_cast<uint64_t>(values.size()));
    for (const std::string& value : values) payload += text(value);
    return raw(key, kArray, payload);
  }
  GgufWriter& set(std::string_view key, const std::vector<int32_t>& values) {
    return raw(key, kArray, bytes_of(uint32_t{kInt32}) + bytes_of(static_cast<uint64_t>(values.size())) + bytes_of(values));
  }
  GgufWriter& set(std::string_view key, const std::vector<float>& values) {
    return raw(key, kArray, bytes_of(uint32_t{kFloat32}) + bytes_of(static_cast<uint64_t>(values.size())) + bytes_of(values));
  }

  /// Appends a tensor; `shape` outermost first.
  GgufWriter& add(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape, const std::string& data) {
    return add_at(name, type, shape, data_.size(), data);
  }
  GgufWriter& add(std::string_view name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
    return add(name, 0, shape, bytes_of(values));
  }
  /// With an offset of the caller's choice in the directory.
  GgufWriter& add_at(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape, uint64_t offset, const std::string& data) {
    directory_ += text(name) + bytes_of(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i > 0; --i) directory_ += bytes_of(shape[i - 1]);
    directory_ += bytes_of(type) + bytes_of(offset);
    ++tensor_count;
    data_ += data;
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return *this;
  }

  std::string bytes() const {
    std::string file = magic + bytes_of(version) + bytes_of(tensor_count) + bytes_of(key_count) + metadata_ + directory_;
    file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment);
    return file + data_;
  }

  // May be changed before bytes().
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;

 private:
  static constexpr size_t kAlignment = 32;

  std::string metadata_;
  std::string directory_;
  std::string data_;
};

}  // namespace minisgl::test
