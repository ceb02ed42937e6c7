// A forward allocates nothing: the test program's operator new is replaced by one that counts. (Not inlined: GCC would take malloc and
// free for mismatched partners of new and delete.)

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "checkpoint/model_config.h"
#include "model/decoder_harness.h"
#include "model/fixtures.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace minisgl {
namespace {

class AllocationTest : public testing::TestWithParam<std::string> {};

TEST_P(AllocationTest, AForwardAllocatesNothing) {
  const ModelConfig config = load_model_config(std::filesystem::path(MINISGL_TEST_DATA) / "models" / GetParam());
  DecoderHarness harness(config, {.dtype = DType::kBFloat16, .threads = 2});
  harness.decoder().load_dummy({});
  harness.set_sequence(0, std::vector<int32_t>(64, 1));
  harness.step({{0, 20}});  // operators may size their scratch memory on first use
  EXPECT_GT(allocations.load(), 0) << "operator new is not the counting one";
  int64_t before = 0, during = -1;
  harness.before_forward = [&] { before = allocations.load(); };
  harness.after_forward = [&] { during = allocations.load() - before; };
  harness.step({{0, 20}});
  EXPECT_EQ(during, 0) << "prefill";
  harness.step({{0, 1}});
  EXPECT_EQ(during, 0) << "decode";
}

TEST_P(AllocationTest, TheWorkspacesAreAsLargeAsPlanned) {
  const ModelConfig config = load_model_config(std::filesystem::path(MINISGL_TEST_DATA) / "models" / GetParam());
  DecoderHarness harness(config, {.max_length = 100, .rows = 3});
  EXPECT_EQ(harness.decoder().workspace_bytes(), Decoder::workspace_bytes(config, DType::kFloat32, 300, 100, Device{}));
}

INSTANTIATE_TEST_SUITE_P(Models, AllocationTest, testing::Values("tiny-qwen3", "tiny-mistral-swa", "tiny-qwen3-moe"), fixtures::test_name);

}  // namespace
}  // namespace minisgl
