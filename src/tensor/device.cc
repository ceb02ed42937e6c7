#include "tensor/device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "tensor/cuda_memory.h"

namespace minisgl {

namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void* map_huge(size_t bytes) {
  // Over-allocate by one huge page and unmap the ends, so that the block starts on a huge page.
  const size_t length = round_up(bytes, kHugePageBytes);
  void* raw = mmap(nullptr, length + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(raw);
  auto* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(begin), kHugePageBytes));
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  const size_t tail = static_cast<size_t>(begin + length + kHugePageBytes - (aligned + length));
  if (tail != 0) munmap(aligned + length, tail);
  madvise(aligned, length, MADV_HUGEPAGE);  // best effort: a kernel without huge pages still works
  return aligned;
}

}  // namespace

std::string device_name(Device device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) return;
  if (to_device.kind == DeviceKind::kCpu && from_device.kind == DeviceKind::kCpu) {
    std::memmove(to, from, bytes);
  } else {
    cuda::copy(to, to_device, from, from_device, bytes);
  }
}

Buffer::Buffer(Device device, size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::kCuda) {
    data_ = cuda::allocate(device.index, bytes);
  } else if (bytes >= kHugePageBytes) {
    data_ = map_huge(bytes);
  } else {
    data_ = std::aligned_alloc(64, round_up(bytes, 64));
    if (data_ != nullptr) std::memset(data_, 0, bytes);
  }
  if (data_ == nullptr) fail(ErrorKind::kOutOfMemory, "cannot allocate {} bytes on {}", bytes, device_name(device));
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    device_ = other.device_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Buffer::release() noexcept {
  if (data_ == nullptr) return;
  if (device_.kind == DeviceKind::kCuda) {
    cuda::release(device_.index, data_);
  } else if (bytes_ >= kHugePageBytes) {
    munmap(data_, round_up(bytes_, kHugePageBytes));
  } else {
    std::free(data_);
  }
  data_ = nullptr;
}

}  // namespace minisgl
