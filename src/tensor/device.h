#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace minisgl {

enum class DeviceKind : uint8_t { kCpu, kCuda };

/// Where memory lives and work runs. A plain value.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:0".
std::string device_name(Device device);

/// CUDA devices that this build and this machine offer; 0 without a driver or in a build without CUDA.
int cuda_device_count();

/// Copies `bytes` between devices, or within one; done when it returns. For loading and tests, not for the hot path.
/// Throws Error(kInternal) with the driver's message if the driver refuses.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

/// A block of memory on a device with one owner; freed on destruction. Move-only.
///
/// On the CPU the memory comes straight from the kernel (mmap) for blocks of 2 MiB and more: aligned to 2 MiB, advised to use huge
/// pages, zero on first touch, and resident only where touched. Smaller blocks are aligned to 64 bytes and zeroed.
/// On CUDA it is aligned to 256 bytes and zeroed.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates `bytes` on `device`. Throws Error(kOutOfMemory) with the size if the system refuses, Error(kNotSupported) for a device
  /// that this build lacks.
  Buffer(Device device, size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void release() noexcept;

  Device device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace minisgl
