#pragma once

#include <cstdint>

#include "checkpoint/model_config.h"

namespace minisgl::limits {

// Upper bounds of what a configuration may say. They are far above any model, and low enough that every size computed from a
// configuration fits in int64 (see ModelConfig::parameter_count()).
inline constexpr int64_t kLayers = 1 << 10;
inline constexpr int64_t kHiddenSize = 1 << 18;
inline constexpr int64_t kHeads = 1 << 12;
inline constexpr int64_t kHeadDim = 1 << 12;
inline constexpr int64_t kIntermediateSize = 1 << 20;
inline constexpr int64_t kVocabSize = 1 << 24;
inline constexpr int64_t kPositions = int64_t{1} << 31;
inline constexpr int64_t kExperts = 1 << 12;
inline constexpr int64_t kParameters = int64_t{1} << 48;
inline constexpr int64_t kTokenId = (int64_t{1} << 31) - 1;

}  // namespace minisgl::limits

namespace minisgl {

/// Checks what ties the fields of a configuration together, for both file formats. Throws Error(kBadModel) that begins with `origin`.
void validate(const ModelConfig& config, const std::string& origin);

/// YaRN's attention factor where the file sets none: 0.1 mscale ln(factor) + 1; 1 for a factor <= 1.
double yarn_mscale(double factor, double mscale);

}  // namespace minisgl
