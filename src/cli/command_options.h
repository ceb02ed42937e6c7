#pragma once

#include "cli/flags.h"
#include "minisgl/config.h"
#include "minisgl/sampling_params.h"

namespace minisgl::cli {

/// The engine that the flags describe. Throws Error(kUsage) if --model is missing.
EngineConfig engine_config(const Flags& flags);

/// The sampling flags; what is not given stays empty. Throws Error(kUsage) for a value out of its range, before a model is loaded; ids are
/// checked against the vocabulary later.
SamplingParams sampling_params(const Flags& flags);

}  // namespace minisgl::cli
