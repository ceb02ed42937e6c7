#pragma once

#include <cstdint>

#include "checkpoint/storage_type.h"

namespace minisgl {

/// The storage type that a GGUF tensor directory means by `type`; null for one this engine does not read.
///   0 F32, 1 F16, 30 BF16: plain.
///   3 Q4_1: 32 values in 20 bytes: scale d and minimum m as binary16, then 16 bytes q; value j is (low nibble of q[j]) * d + m, value
///           j + 16 the same with the high nibble.
///   8 Q8_0: 32 values in 34 bytes: scale d as binary16, then 32 signed bytes q; value j is q[j] * d.
/// Products and sums are rounded to float32 one by one.
const StorageType* gguf_storage_type(uint32_t type);

/// What the format calls the type ("Q4_K"), for messages; "unknown" if it has no such type.
const char* gguf_type_name(uint32_t type);

/// The types gguf_storage_type() knows, for messages: "F32, F16, BF16, Q8_0, Q4_1".
const char* gguf_readable_types();

}  // namespace minisgl
