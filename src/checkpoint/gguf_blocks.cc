#include "checkpoint/gguf_blocks.h"

#include <cstring>
#include <iterator>

namespace minisgl {

namespace {

constexpr size_t kBlockElements = 32;

float read_half(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return half_to_float(bits);
}

constexpr size_t kQ8_0Bytes = 2 + kBlockElements;

void q8_0_to_float(const std::byte* blocks, size_t block_count, float* out) {
  for (size_t block = 0; block < block_count; ++block, blocks += kQ8_0Bytes, out += kBlockElements) {
    const float scale = read_half(blocks);
    const auto* quants = reinterpret_cast<const int8_t*>(blocks + 2);
    for (size_t j = 0; j < kBlockElements; ++j) out[j] = static_cast<float>(quants[j]) * scale;
  }
}

constexpr size_t kQ4_1Bytes = 4 + kBlockElements / 2;

void q4_1_to_float(const std::byte* blocks, size_t block_count, float* out) {
  for (size_t block = 0; block < block_count; ++block, blocks += kQ4_1Bytes, out += kBlockElements) {
    const float scale = read_half(blocks);
    const float minimum = read_half(blocks + 2);
    const auto* quants = reinterpret_cast<const uint8_t*>(blocks + 4);
    for (size_t j = 0; j < kBlockElements / 2; ++j) {
      out[j] = static_cast<float>(quants[j] & 0x0f) * scale + minimum;
      out[j + kBlockElements / 2] = static_cast<float>(quants[j] >> 4) * scale + minimum;
    }
  }
}

constexpr StorageType kQ8_0{"Q8_0", kBlockElements, kQ8_0Bytes, q8_0_to_float};
constexpr StorageType kQ4_1{"Q4_1", kBlockElements, kQ4_1Bytes, q4_1_to_float};

}  // namespace

const StorageType* gguf_storage_type(uint32_t type) {
  switch (type) {
    case 0:
      return &kStorageF32;
    case 1:
      return &kStorageF16;
    case 3:
      return &kQ4_1;
    case 8:
      return &kQ8_0;
    case 30:
      return &kStorageBF16;
    default:
      return nullptr;
  }
}

const char* gguf_type_name(uint32_t type) {
  // Numbers 4, 5, 31 to 33 and 36 to 38 belonged to types that the format has removed.
  static constexpr const char* kNames[] = {"F32",    "F16",   "Q4_0",  "Q4_1",   nullptr, nullptr, "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
                                           "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
                                           "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
                                           "BF16",   nullptr, nullptr, nullptr,  "TQ1_0", "TQ2_0", nullptr,   nullptr,  nullptr,   "MXFP4"};
  if (type < std::size(kNames) && kNames[type] != nullptr) return kNames[type];
  return "unknown";
}

const char* gguf_readable_types() {
  return "F32, F16, BF16, Q8_0, Q4_1";
}

}  // namespace minisgl
