#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "engine/cpu_executor.h"

namespace minisgl {

namespace {

constexpr int kMaxInFlight = 2;
constexpr int64_t kLogitBlockBytes = int64_t{64} << 20;

void check_range(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) fail_param(ErrorKind::kUsage, flag, "--{} is {}; allowed is {} to {}", flag, value, low, high);
}

void check_choice(const char* flag, const std::string& value, const char* one, const char* other) {
  if (value != one && value != other) fail_param(ErrorKind::kUsage, flag, "--{} is '{}'; allowed are {}, {}", flag, value, one, other);
}

CacheGroup cache_group(const EngineConfig& config, const ModelConfig& model, DType dtype) {
  CacheGroup group{.layers = std::vector<int>(static_cast<size_t>(model.num_layers)),
                   .page_size = static_cast<int>(resolve_page_size(config)),
                   .kv_heads = static_cast<int>(model.num_kv_heads),
                   .head_dim = static_cast<int>(model.head_dim),
                   .dtype = dtype};
  std::iota(group.layers.begin(), group.layers.end(), 0);
  return group;
}

CpuExecutor::Settings executor_settings(const EngineConfig& config, const ModelConfig& model, int64_t max_model_len, int64_t num_pages) {
  return {.limits = {.rows = config.max_running_requests,
                     .max_tokens = max_step_tokens(config, max_model_len),
                     .max_model_len = max_model_len,
                     .num_pages = num_pages,
                     .page_size = resolve_page_size(config),
                     .cache_groups = 1,
                     .vocab_size = model.vocab_size},
          .logit_block_rows = std::clamp<int64_t>(kLogitBlockBytes / (4 * model.vocab_size), 8, Decoder::kMaxLogitRows),
          .max_in_flight = kMaxInFlight};
}

MemoryPlan make_plan(const EngineConfig& config, const ModelConfig& model, DType dtype) {
  const size_t available = available_memory_bytes();
  const size_t weight_bytes = Decoder::weight_bytes(model, dtype);
  check_weights_fit(weight_bytes, available, config.model, dtype);
  return plan_memory(config, model, cache_group(config, model, dtype), available, weight_bytes, [&](int64_t max_model_len) {
    return Decoder::workspace_bytes(model, dtype, max_step_tokens(config, max_model_len), max_model_len, Device{}) +
           CpuExecutor::workspace_bytes(executor_settings(config, model, max_model_len, 1));
  });
}

}  // namespace

void check_engine_config(const EngineConfig& config) {
  if (config.device != "auto" && config.device != "cpu") {
    fail_param(ErrorKind::kUsage, "device", "--device is '{}'; allowed are auto, cpu", config.device);
  }
  constexpr int64_t kMaxLength = int64_t{1} << 26;
  check_range("max-running-requests", config.max_running_requests, 1, 65536);
  check_range("max-prefill-tokens", config.max_prefill_tokens, 1, int64_t{1} << 20);
  check_threads(config.threads);
  if (config.max_model_len) check_range("max-model-len", *config.max_model_len, 2, kMaxLength);
  if (config.num_pages) check_range("num-pages", *config.num_pages, 1, kMaxLength);
  if (config.page_size) check_range("page-size", *config.page_size, 1, 4096);
  check_choice("cache-type", config.cache_type, "radix", "naive");
  check_choice("schedule-policy", config.schedule_policy, "fcfs", "lpm");
  check_choice("admission", config.admission, "expected", "full");
  if (!(config.memory_ratio > 0 && config.memory_ratio <= 1)) {
    fail_param(ErrorKind::kUsage, "memory-ratio", "--memory-ratio is {}; allowed is more than 0 and at most 1", config.memory_ratio);
  }
}

DType resolve_dtype(const EngineConfig& config, const ModelConfig& model) {
  if (config.dtype == "float32") return DType::kFloat32;
  if (config.dtype == "bfloat16") return DType::kBFloat16;
  if (config.dtype != "auto") {
    fail_param(ErrorKind::kUsage, "dtype", "--dtype is '{}'; allowed are auto, float32, bfloat16", config.dtype);
  }
  return model.dtype == DType::kFloat32 ? DType::kFloat32 : DType::kBFloat16;
}

/// The decoder with its KV, as the executor sees it.
class Engine::Model final : public ForwardModel {
 public:
  Model(Decoder& decoder, AttentionBackend& attention, const KvPool& kv) : decoder_(decoder), attention_(attention), kv_(kv) {}
  void forward(const ForwardBatch& batch) override { decoder_.forward(batch, attention_, kv_.layers()); }
  void head(const Tensor& rows, const Tensor& logits) override { decoder_.head(rows, logits); }

 private:
  Decoder& decoder_;
  AttentionBackend& attention_;
  const KvPool& kv_;
};

Engine::Engine(const EngineConfig& config, const ModelPath& path, const ModelConfig& model, const LoadProgress& progress)
    : model_config_(model), dtype_(resolve_dtype(config, model)), plan_(plan(config, model)), pool_(process_compute_pool(config.threads)) {
  if (config.dtype == "auto" && model.dtype == DType::kFloat16) {
    spdlog::info("the float16 weights of {} are rounded to bfloat16, which has 3 bits less; --dtype float32 keeps them exactly",
                 config.model);
  }
  ops_ = make_cpu_ops(pool_);
  communicator_ = make_self_communicator();
  attention_ = make_cpu_attention_backend(*ops_);
  decoder_ = std::make_unique<Decoder>(model, dtype_, plan_.max_step_tokens, plan_.max_model_len, *ops_, *communicator_);
  if (config.dummy_weights || path.format == ModelFormat::kShape) {
    decoder_->load_dummy(progress);
  } else {
    decoder_->load(*open_checkpoint(path), progress);  // the mapping goes with the checkpoint
  }
  kv_pool_ = std::make_unique<KvPool>(cache_group(config, model, dtype_), plan_.num_pages, ops_->device());
  model_ = std::make_unique<Model>(*decoder_, *attention_, *kv_pool_);
  KvPool* const pools[] = {kv_pool_.get()};
  executor_ =
      std::make_unique<CpuExecutor>(executor_settings(config, model, plan_.max_model_len, plan_.num_pages), *model_, pools, *ops_, pool_);
}

Engine::~Engine() = default;

MemoryPlan Engine::plan(const EngineConfig& config, const ModelConfig& model) {
  check_engine_config(config);
  return make_plan(config, model, resolve_dtype(config, model));
}

}  // namespace minisgl
