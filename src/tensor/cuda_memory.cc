#include "tensor/cuda_memory.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace minisgl {

int cuda_device_count() {
  int count = 0;
  // Without a driver, or with one too old for this runtime, the call fails: there is no device then.
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

namespace cuda {

namespace {

void check(cudaError_t status, const char* call, size_t bytes) {
  if (status != cudaSuccess) fail(ErrorKind::kInternal, "{} of {} bytes failed: {}", call, bytes, cudaGetErrorString(status));
}

/// Makes a device current for the calling thread and the one before it current again at the end.
class DeviceScope {
 public:
  explicit DeviceScope(int index) {
    cudaGetDevice(&previous_);
    if (cudaSetDevice(index) != cudaSuccess) {
      fail(ErrorKind::kNotSupported, "there is no CUDA device {}: this machine has {}", index, cuda_device_count());
    }
  }
  ~DeviceScope() { cudaSetDevice(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace

void* allocate(int index, size_t bytes) {
  const DeviceScope scope(index);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the refusal is reported by the caller; it must not surface again at the next call
    return nullptr;
  }
  check(status, "cudaMalloc", bytes);
  check(cudaMemset(data, 0, bytes), "cudaMemset", bytes);
  return data;
}

void release(int, void* data) noexcept {
  cudaFree(data);
}

void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  const DeviceScope scope(to_device.kind == DeviceKind::kCuda ? to_device.index : from_device.index);
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy", bytes);
  // A copy from pageable memory, or within a device, may return before it is done.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize after a copy", bytes);
}

}  // namespace cuda

}  // namespace minisgl
