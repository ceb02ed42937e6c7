#pragma once

#include <cstddef>

#include "tensor/device.h"

// Memory of CUDA devices, behind Buffer and copy_bytes(). Two implementations: cuda_memory.cc over the CUDA runtime, which opens the
// driver when it is first used, and cuda_memory_absent.cc for builds without CUDA.
namespace minisgl::cuda {

/// Zeroed memory on device `index`; null if there is not enough. Throws Error(kNotSupported) if there is no such device.
void* allocate(int index, size_t bytes);
void release(int index, void* data) noexcept;
/// At least one of the two devices is a CUDA device.
void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

}  // namespace minisgl::cuda
