#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace minisgl {

/// How a file stores the values of a tensor: blocks of `block_elements` consecutive values of a row in `block_bytes` bytes. A plain type
/// has one value per block.
struct StorageType {
  const char* name;
  size_t block_elements;
  size_t block_bytes;
  /// Expands blocks to float32 (`blocks` may be unaligned); null for a type whose size is known but whose values this engine does not read.
  void (*to_float)(const std::byte* blocks, size_t block_count, float* out);
};

extern const StorageType kStorageF32;
extern const StorageType kStorageF16;
extern const StorageType kStorageBF16;

/// By the name in a safetensors header ("F32", "BF16", "F8_E4M3", ...); null if unknown.
const StorageType* safetensors_storage_type(std::string_view name);

/// Converts `elements` values, a multiple of the block, to float32 or bfloat16. `type.to_float` must not be null.
void convert(const StorageType& type, const std::byte* blocks, size_t elements, DType out_dtype, void* out);

}  // namespace minisgl
