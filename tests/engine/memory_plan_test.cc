#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/engine.h"

namespace minisgl {
namespace {

constexpr size_t kMib = size_t{1} << 20;

/// One page of 16 tokens takes 1 MiB in all layers.
CacheGroup group() {
  return {.layers = {0, 1, 2, 3}, .page_size = 16, .kv_heads = 16, .head_dim = 128, .dtype = DType::kFloat32};
}

/// Workspaces of which `per_token` bytes grow with L.
WorkspaceBytes workspace(size_t fixed, size_t per_token = 0) {
  return [=](int64_t max_model_len) { return fixed + per_token * static_cast<size_t>(max_model_len); };
}

ModelConfig model(int64_t max_positions) {
  ModelConfig config;
  config.max_position_embeddings = max_positions;
  return config;
}

TEST(MemoryPlan, DefaultPoolHoldsEightLongestSequences) {
  ASSERT_EQ(group().page_bytes(), kMib);
  const MemoryPlan plan = plan_memory({}, model(100), group(), 4096 * kMib, 1000 * kMib, workspace(96 * kMib));
  EXPECT_EQ(plan.num_pages, 8 * 7);
  EXPECT_EQ(plan.kv_tokens, 56 * 16);
  EXPECT_EQ(plan.max_model_len, 100);
  EXPECT_EQ(plan.kv_bytes, 57 * kMib) << "and the dummy page";
}

TEST(MemoryPlan, DefaultPoolTakesAtMostAQuarterAndLowersTheLimit) {
  const MemoryPlan plan = plan_memory({}, model(100000), group(), 4096 * kMib, 1000 * kMib, workspace(96 * kMib));
  EXPECT_EQ(plan.num_pages, 749);
  EXPECT_EQ(plan.max_model_len, 749 * 16);
}

TEST(MemoryPlan, MemoryRatioIsAnUpperBound) {
  EngineConfig config;
  config.memory_ratio = 0.1;
  EXPECT_EQ(plan_memory(config, model(100000), group(), 4096 * kMib, 1000 * kMib, workspace(96 * kMib)).num_pages, 299);
}

TEST(MemoryPlan, AnExplicitLengthStaysAboveASmallPool) {
  EngineConfig config;
  config.max_model_len = 5000;
  config.num_pages = 2;
  const MemoryPlan plan = plan_memory(config, model(100), group(), 4096 * kMib, 0, workspace(0));
  EXPECT_EQ(plan.num_pages, 2);
  EXPECT_EQ(plan.max_model_len, 5000);
}

TEST(MemoryPlan, TablesThatGrowWithTheLengthLowerTheLimit) {
  // 4000 MiB for KV, tables and workspaces at 1 MiB per token of L: a quarter of the 804 MiB that 3196 leaves is 200 pages and
  // the dummy page, which hold 3200; one token more would lose a page.
  const MemoryPlan plan = plan_memory({}, model(int64_t{1} << 31), group(), 4096 * kMib, 0, workspace(96 * kMib, kMib));
  EXPECT_EQ(plan.max_model_len, 3196);
  EXPECT_EQ(plan.num_pages, 200);
  EXPECT_EQ(plan.workspace_bytes, (96 + 3196) * kMib);
  EXPECT_LE(plan.workspace_bytes + plan.kv_bytes, 4096 * kMib);
}

TEST(MemoryPlan, AnExplicitLengthWhoseTablesDoNotFitIsRefusedWithNumbers) {
  EngineConfig config;
  config.max_model_len = 5000;
  try {
    plan_memory(config, model(5000), group(), 4096 * kMib, 0, workspace(96 * kMib, kMib));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_EQ(error.param(), "max-model-len");
    EXPECT_NE(std::string(error.what()).find("5.0 GiB"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("at most 4000"), std::string::npos) << error.what();
  }
}

TEST(MemoryPlan, RefusesWhatDoesNotFitWithNumbers) {
  try {
    check_weights_fit(3000 * kMib, 1024 * kMib, "some/model", DType::kFloat32);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("2.9 GiB"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("1.0 GiB"), std::string::npos) << error.what();
  }
  EngineConfig config;
  config.num_pages = 5000;
  EXPECT_THROW(plan_memory(config, model(100), group(), 4096 * kMib, 0, workspace(0)), Error);
  EXPECT_THROW(plan_memory({}, model(100), group(), 1001 * kMib, 1000 * kMib, workspace(kMib)), Error);
}

TEST(MemoryPlan, TheSystemHasSomeMemory) {
  EXPECT_GT(available_memory_bytes(), 16 * kMib);
  EXPECT_LT(available_memory_bytes(), size_t{1} << 50);
}

TEST(EngineConfigCheck, NamesTheFlag) {
  const auto param_of = [](const auto& change) {
    EngineConfig config;
    change(config);
    try {
      check_engine_config(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.param();
    }
    return std::string();
  };
  EXPECT_EQ(param_of([](EngineConfig&) {}), "");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.device = "tpu"; }), "device");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.max_running_requests = 0; }), "max-running-requests");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.max_prefill_tokens = 0; }), "max-prefill-tokens");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.max_model_len = 1; }), "max-model-len");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.num_pages = 0; }), "num-pages");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.page_size = 0; }), "page-size");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.memory_ratio = 0; }), "memory-ratio");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.memory_ratio = std::nan(""); }), "memory-ratio");
  EXPECT_EQ(param_of([](EngineConfig& c) { c.threads = -1; }), "threads");
}

}  // namespace
}  // namespace minisgl
