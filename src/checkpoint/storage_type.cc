#include "checkpoint/storage_type.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace minisgl {

namespace {

void float32_to_float(const std::byte* blocks, size_t block_count, float* out) {
  std::memcpy(out, blocks, block_count * sizeof(float));
}

void float16_to_float(const std::byte* blocks, size_t block_count, float* out) {
  for (size_t i = 0; i < block_count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, blocks + 2 * i, sizeof bits);
    out[i] = half_to_float(bits);
  }
}

void bfloat16_to_float(const std::byte* blocks, size_t block_count, float* out) {
  for (size_t i = 0; i < block_count; ++i) {
    BFloat16 value;
    std::memcpy(&value, blocks + 2 * i, sizeof value);
    out[i] = static_cast<float>(value);
  }
}

constexpr StorageType kSizedOnly[] = {
    {"F64", 1, 8, nullptr},     {"I64", 1, 8, nullptr},     {"U64", 1, 8, nullptr},     {"I32", 1, 4, nullptr}, {"U32", 1, 4, nullptr},
    {"I16", 1, 2, nullptr},     {"U16", 1, 2, nullptr},     {"I8", 1, 1, nullptr},      {"U8", 1, 1, nullptr},  {"BOOL", 1, 1, nullptr},
    {"F8_E4M3", 1, 1, nullptr}, {"F8_E5M2", 1, 1, nullptr}, {"F8_E8M0", 1, 1, nullptr},
};

}  // namespace

const StorageType kStorageF32{"F32", 1, 4, float32_to_float};
const StorageType kStorageF16{"F16", 1, 2, float16_to_float};
const StorageType kStorageBF16{"BF16", 1, 2, bfloat16_to_float};

const StorageType* safetensors_storage_type(std::string_view name) {
  for (const StorageType* type : {&kStorageF32, &kStorageF16, &kStorageBF16}) {
    if (name == type->name) return type;
  }
  for (const StorageType& type : kSizedOnly) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

void convert(const StorageType& type, const std::byte* blocks, size_t elements, DType out_dtype, void* out) {
  MINISGL_CHECK(type.to_float != nullptr && elements % type.block_elements == 0, "{} values of {}", elements, type.name);
  if (out_dtype == DType::kFloat32) {
    type.to_float(blocks, elements / type.block_elements, static_cast<float*>(out));
    return;
  }
  MINISGL_CHECK(out_dtype == DType::kBFloat16, "{}", dtype_name(out_dtype));
  if (&type == &kStorageBF16) {
    std::memcpy(out, blocks, elements * sizeof(BFloat16));
    return;
  }
  std::array<float, 1024> expanded;
  const size_t blocks_per_step = expanded.size() / type.block_elements;
  auto* target = static_cast<BFloat16*>(out);
  for (size_t left = elements / type.block_elements; left > 0;) {
    const size_t count = std::min(left, blocks_per_step);
    type.to_float(blocks, count, expanded.data());
    const size_t values = count * type.block_elements;
    for (size_t i = 0; i < values; ++i) target[i] = BFloat16(expanded[i]);
    target += values;
    blocks += count * type.block_bytes;
    left -= count;
  }
}

}  // namespace minisgl
