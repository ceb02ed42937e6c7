#include "checkpoint/gguf.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "checkpoint/file_text.h"
#include "checkpoint/gguf_blocks.h"

namespace minisgl {

enum class GgufFile::ValueType : uint32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kUInt16 = 2,
  kInt16 = 3,
  kUInt32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUInt64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

namespace {

constexpr char kMagic[4] = {'G', 'G', 'U', 'F'};
constexpr size_t kMaxKeyBytes = 1024;
constexpr size_t kMaxTensorNameBytes = 1024;
constexpr int kMaxArrayDepth = 4;
constexpr uint32_t kLastValueType = 12;
// The smallest a metadata entry (key length, type, one byte) and a tensor entry (name length, rank, type, offset) can be. They bound the
// counts by the file's size before anything is reserved.
constexpr size_t kMinEntryBytes = 8 + 4 + 1;
constexpr size_t kMinTensorBytes = 8 + 4 + 4 + 8;

template <typename T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

/// A cursor over the file. Every step is checked against the end of the file.
class GgufFile::Reader {
 public:
  explicit Reader(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size() - offset_; }

  template <typename T>
  T take(const char* what) {
    require(sizeof(T), what);
    const T value = load<T>(bytes_, offset_);
    offset_ += sizeof(T);
    return value;
  }

  std::string_view take_string(const char* what) {
    const auto length = take<uint64_t>(what);
    require(length, what);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + offset_, length);
    offset_ += length;
    return text;
  }

  void skip(uint64_t bytes, const char* what) {
    require(bytes, what);
    offset_ += bytes;
  }

  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadModel, "{}: {} (byte {} of {})", file_.path().string(), fmt::format(format, std::forward<Args>(args)...), offset_,
         bytes_.size());
  }

 private:
  void require(uint64_t bytes, const char* what) const {
    if (bytes > left()) bad("the file is cut off or damaged: {} needs {} bytes, {} are left", what, bytes, left());
  }

  const MappedFile& file_;
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
};

namespace {

/// Bytes of a scalar value; 0 for strings and arrays.
constexpr size_t scalar_bytes(uint32_t type) {
  constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[type];
}

constexpr const char* value_type_name(uint32_t type) {
  constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                    "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[type];
}

}  // namespace

bool GgufFile::has_magic(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  char magic[4] = {};
  return stream.read(magic, sizeof magic) && std::equal(std::begin(magic), std::end(magic), kMagic);
}

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  parse();
}

GgufFile::Value GgufFile::read_value(Reader& reader, const std::string& key) const {
  const auto take_type = [&] {
    const auto type = reader.take<uint32_t>("a value type");
    if (type > kLastValueType) reader.bad("metadata key {}: unknown value type {}", key, type);
    return static_cast<ValueType>(type);
  };
  Value value{take_type(), ValueType::kUInt8, 1, 0};

  // Skips `count` elements of `type`, whose bytes start at the reader. Strings have at least their 8-byte length and arrays a 12-byte
  // head, so a count that the file cannot hold is refused before the loop.
  const auto skip_elements = [&](auto&& self, ValueType type, uint64_t count, int depth) -> void {
    const auto number = static_cast<uint32_t>(type);
    const uint64_t smallest = type == ValueType::kString ? 8 : type == ValueType::kArray ? 12 : scalar_bytes(number);
    if (count > reader.left() / smallest) {
      reader.bad("metadata key {}: {} elements of type {} do not fit in the {} bytes left", key, count, value_type_name(number),
                 reader.left());
    }
    if (type == ValueType::kString) {
      for (uint64_t i = 0; i < count; ++i) reader.take_string("a string value");
    } else if (type == ValueType::kArray) {
      if (depth == kMaxArrayDepth) reader.bad("metadata key {}: arrays are nested more than {} deep", key, kMaxArrayDepth);
      for (uint64_t i = 0; i < count; ++i) {
        const ValueType element = take_type();
        const auto elements = reader.take<uint64_t>("an array length");
        self(self, element, elements, depth + 1);
      }
    } else {
      reader.skip(count * smallest, "a value");
    }
  };

  if (value.type == ValueType::kArray) {
    value.element_type = take_type();
    value.count = reader.take<uint64_t>("an array length");
    value.offset_bytes = reader.offset();
    skip_elements(skip_elements, value.element_type, value.count, 1);
  } else {
    value.offset_bytes = reader.offset();
    skip_elements(skip_elements, value.type, 1, 0);
  }
  return value;
}

void GgufFile::parse() {
  Reader reader(file_);
  const std::span<const std::byte> bytes = file_.bytes();
  refuse_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path().string());
  if (bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    fail(ErrorKind::kBadModel, "{} is not a GGUF file: it does not begin with \"GGUF\"", path().string());
  }
  reader.skip(sizeof kMagic, "the magic");
  const auto version = reader.take<uint32_t>("the version");
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffffu) == 0;
    fail(ErrorKind::kNotSupported, "{}: GGUF version {}{}; versions 2 and 3, little-endian, are read", path().string(), version,
         swapped ? " (a big-endian file)" : "");
  }
  const auto tensor_count = reader.take<uint64_t>("the tensor count");
  const auto key_count = reader.take<uint64_t>("the metadata count");
  if (key_count > reader.left() / kMinEntryBytes) reader.bad("{} metadata entries do not fit in the file", key_count);
  if (tensor_count > reader.left() / kMinTensorBytes) reader.bad("{} tensors do not fit in the file", tensor_count);

  for (uint64_t i = 0; i < key_count; ++i) {
    const std::string_view key_text = reader.take_string("a metadata key");
    check_name(key_text, kMaxKeyBytes, "a metadata key", path().string());
    std::string key(key_text);
    const Value value = read_value(reader, key);
    if (!values_.emplace(key, value).second) reader.bad("metadata key {} appears twice", key);
    keys_.push_back(std::move(key));
  }

  const int64_t alignment = integer("general.alignment").value_or(32);
  if (alignment < 1 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0) {
    fail(ErrorKind::kBadModel, "{}: general.alignment is {}, it must be a power of two up to 1048576", path().string(), alignment);
  }

  std::unordered_map<std::string_view, size_t> seen;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    GgufTensor tensor;
    const std::string_view name_text = reader.take_string("a tensor name");
    check_name(name_text, kMaxTensorNameBytes, "a tensor name", path().string());
    tensor.name = name_text;
    const auto rank = reader.take<uint32_t>("a tensor rank");
    if (rank == 0 || rank > static_cast<uint32_t>(Shape::kMaxRank))
      reader.bad("tensor {} has rank {}, allowed is 1 to 4", tensor.name, rank);
    int64_t dims[Shape::kMaxRank] = {1, 1, 1, 1};
    int64_t elements = 1;
    for (uint32_t d = 0; d < rank; ++d) {
      const auto dim = reader.take<uint64_t>("a tensor dimension");
      // 2^48 elements are more than any file has; below it the sizes in bytes cannot overflow.
      if (dim == 0 || dim > (uint64_t{1} << 48) / static_cast<uint64_t>(elements))
        reader.bad("tensor {}: dimension {} is absurd", tensor.name, dim);
      dims[d] = static_cast<int64_t>(dim);
      elements *= dims[d];
    }
    switch (rank) {
      case 1:
        tensor.shape = {dims[0]};
        break;
      case 2:
        tensor.shape = {dims[1], dims[0]};
        break;
      case 3:
        tensor.shape = {dims[2], dims[1], dims[0]};
        break;
      default:
        tensor.shape = {dims[3], dims[2], dims[1], dims[0]};
        break;
    }
    tensor.type = reader.take<uint32_t>("a tensor type");
    const auto offset = reader.take<uint64_t>("a tensor offset");
    if (offset % static_cast<uint64_t>(alignment) != 0)
      reader.bad("tensor {}: offset {} is not a multiple of the alignment {}", tensor.name, offset, alignment);
    if (offset > bytes.size()) reader.bad("tensor {}: offset {} is outside the file", tensor.name, offset);
    tensor.offset_bytes = offset;
    const StorageType* type = gguf_storage_type(tensor.type);
    if (type != nullptr && dims[0] % static_cast<int64_t>(type->block_elements) != 0) {
      reader.bad("tensor {}: rows of {} values are no whole number of {} blocks of {}", tensor.name, dims[0], type->name,
                 type->block_elements);
    }
    tensors_.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!seen.emplace(tensors_[i].name, i).second) reader.bad("tensor {} appears twice", tensors_[i].name);
  }

  // The data section starts at the next multiple of the alignment after the directory; offsets count from there.
  const auto align = static_cast<size_t>(alignment);
  const size_t data_begin = (reader.offset() + align - 1) / align * align;
  struct Range {
    size_t begin, end;
    const GgufTensor* tensor;
  };
  std::vector<Range> ranges;
  for (GgufTensor& tensor : tensors_) {
    tensor.offset_bytes += data_begin;
    const StorageType* type = gguf_storage_type(tensor.type);
    const size_t size = type == nullptr ? 0 : static_cast<size_t>(tensor.shape.elements()) / type->block_elements * type->block_bytes;
    if (tensor.offset_bytes > bytes.size() || size > bytes.size() - tensor.offset_bytes) {
      fail(ErrorKind::kBadModel, "{}: the file is cut off or damaged: tensor {} needs bytes {} to {}, the file has {}", path().string(),
           tensor.name, tensor.offset_bytes, tensor.offset_bytes + size, bytes.size());
    }
    ranges.push_back({tensor.offset_bytes, tensor.offset_bytes + size, &tensor});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      fail(ErrorKind::kBadModel, "{}: tensors {} and {} overlap", path().string(), ranges[i - 1].tensor->name, ranges[i].tensor->name);
    }
  }
  // The walk touched all of the header; a vocabulary alone has megabytes.
  file_.drop(0, data_begin);
}

const GgufFile::Value* GgufFile::find(std::string_view key) const {
  const auto at = values_.find(std::string(key));
  return at == values_.end() ? nullptr : &at->second;
}

namespace {

[[noreturn]] void wrong_type(const GgufFile& file, std::string_view key, const char* wanted, uint32_t found) {
  fail(ErrorKind::kBadModel, "{}: metadata key {} must be {}, it is {}", file.path().string(), key, wanted, value_type_name(found));
}

}  // namespace

const GgufFile::Value* GgufFile::find_array(std::string_view key) const {
  const Value* value = find(key);
  if (value != nullptr && value->type != ValueType::kArray) wrong_type(*this, key, "an array", static_cast<uint32_t>(value->type));
  return value;
}

bool GgufFile::contains(std::string_view key) const {
  return find(key) != nullptr;
}

int64_t GgufFile::integer_at(ValueType type, size_t offset, std::string_view key) const {
  const std::span<const std::byte> bytes = file_.bytes();
  switch (type) {
    case ValueType::kUInt8:
      return load<uint8_t>(bytes, offset);
    case ValueType::kInt8:
      return load<int8_t>(bytes, offset);
    case ValueType::kUInt16:
      return load<uint16_t>(bytes, offset);
    case ValueType::kInt16:
      return load<int16_t>(bytes, offset);
    case ValueType::kUInt32:
      return load<uint32_t>(bytes, offset);
    case ValueType::kInt32:
      return load<int32_t>(bytes, offset);
    case ValueType::kInt64:
      return load<int64_t>(bytes, offset);
    case ValueType::kUInt64: {
      const auto value = load<uint64_t>(bytes, offset);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(ErrorKind::kBadModel, "{}: metadata key {} holds {}, which is out of range", path().string(), key, value);
      }
      return static_cast<int64_t>(value);
    }
    default:
      wrong_type(*this, key, "an integer", static_cast<uint32_t>(type));
  }
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return integer_at(value->type, value->offset_bytes, key);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == ValueType::kFloat32) return load<float>(file_.bytes(), value->offset_bytes);
  if (value->type == ValueType::kFloat64) return load<double>(file_.bytes(), value->offset_bytes);
  return static_cast<double>(integer_at(value->type, value->offset_bytes, key));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != ValueType::kBool) wrong_type(*this, key, "a bool", static_cast<uint32_t>(value->type));
  return load<uint8_t>(file_.bytes(), value->offset_bytes) != 0;
}

std::optional<std::string> GgufFile::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != ValueType::kString) wrong_type(*this, key, "a string", static_cast<uint32_t>(value->type));
  const auto length = load<uint64_t>(file_.bytes(), value->offset_bytes);
  return std::string(reinterpret_cast<const char*>(file_.bytes().data()) + value->offset_bytes + sizeof length, length);
}

std::optional<std::vector<std::string>> GgufFile::strings(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (value->element_type != ValueType::kString) wrong_type(*this, key, "an array of strings", static_cast<uint32_t>(value->element_type));
  std::vector<std::string> result;
  result.reserve(value->count);
  size_t offset = value->offset_bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<uint64_t>(file_.bytes(), offset);
    offset += sizeof length;
    result.emplace_back(reinterpret_cast<const char*>(file_.bytes().data()) + offset, length);
    offset += length;
  }
  return result;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  const size_t stride = scalar_bytes(static_cast<uint32_t>(value->element_type));
  std::vector<int64_t> result;
  if (stride != 0) result.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) result.push_back(integer_at(value->element_type, value->offset_bytes + i * stride, key));
  return result;
}

std::optional<std::vector<float>> GgufFile::floats(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (value->element_type != ValueType::kFloat32) wrong_type(*this, key, "an array of float32", static_cast<uint32_t>(value->element_type));
  std::vector<float> result(value->count);
  if (!result.empty()) std::memcpy(result.data(), file_.bytes().data() + value->offset_bytes, result.size() * sizeof(float));
  return result;
}

std::optional<uint64_t> GgufFile::array_size(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  return value->count;
}

}  // namespace minisgl
