#include "base/error.h"
#include "tensor/cuda_memory.h"

namespace minisgl {

int cuda_device_count() {
  return 0;
}

namespace cuda {

namespace {

[[noreturn]] void fail_absent() {
  fail(ErrorKind::kNotSupported, "this build has no CUDA: build it with the preset cuda-release, or use --device cpu");
}

}  // namespace

void* allocate(int, size_t) {
  fail_absent();
}
void release(int, void*) noexcept {}
void copy(void*, Device, const void*, Device, size_t) {
  fail_absent();
}

}  // namespace cuda

}  // namespace minisgl
