#include "tensor/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.h"

namespace minisgl {
namespace {

TEST(BufferTest, MemoryIsZeroAndAlignedWhateverItsSize) {
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{4096}, (size_t{2} << 20) - 1, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    const Buffer buffer({}, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    const auto* data = static_cast<const unsigned char*>(buffer.data());
    EXPECT_EQ(data[0] | data[bytes / 2] | data[bytes - 1], 0) << bytes;
  }
}

TEST(BufferTest, MovingLeavesNothingBehind) {
  Buffer a({}, 100);
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): what a moved-from buffer is, is the test
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  EXPECT_EQ(a.bytes(), 100u);
}

TEST(BufferTest, AnImpossibleSizeIsAnErrorWithItsNumber) {
  try {
    const Buffer buffer({}, size_t{1} << 60);
    FAIL() << "2^60 bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos);
  }
}

TEST(CudaBufferTest, ADeviceThatIsNotThereIsRefused) {
  EXPECT_THROW(Buffer({DeviceKind::kCuda, cuda_device_count()}, 16), Error);
}

TEST(CudaBufferTest, BytesSurviveARoundTripThroughEachDevice) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "NOT RUN: no CUDA device, or a build without CUDA";
  for (int index = 0; index < cuda_device_count(); ++index) {
    const Device device{DeviceKind::kCuda, index};
    std::vector<uint32_t> values(100'003);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 2654435761u);
    const size_t bytes = values.size() * sizeof(uint32_t);
    Buffer first(device, bytes);
    Buffer second(device, bytes);
    std::vector<uint32_t> back(values.size(), 1);
    copy_bytes(back.data(), {}, first.data(), device, bytes);
    EXPECT_EQ(back, std::vector<uint32_t>(values.size(), 0)) << "memory starts as zeros";
    copy_bytes(first.data(), device, values.data(), {}, bytes);
    copy_bytes(second.data(), device, first.data(), device, bytes);
    first = Buffer();
    copy_bytes(back.data(), {}, second.data(), device, bytes);
    EXPECT_EQ(back, values);
    EXPECT_THROW(Buffer(device, size_t{1} << 50), Error) << "a card has no petabyte";
    EXPECT_NO_THROW(Buffer(device, 1024)) << "and the refusal leaves no trace";
  }
}

}  // namespace
}  // namespace minisgl
