#pragma once

#include <memory>

#include "ops/cpu/isa.h"
#include "ops/ops.h"

namespace minisgl::cpu {

/// The CPU operators in a given instruction set, which this CPU must have (tests, `check`).
std::unique_ptr<Ops> make_cpu_ops(ComputePool& pool, Isa isa);

}  // namespace minisgl::cpu
