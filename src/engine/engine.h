#pragma once

#include <memory>

#include "attention/attention_backend.h"
#include "base/compute_pool.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_path.h"
#include "distributed/communicator.h"
#include "engine/executor.h"
#include "engine/memory_plan.h"
#include "kvcache/kv_pool.h"
#include "minisgl/config.h"
#include "model/decoder.h"
#include "ops/ops.h"

namespace minisgl {

/// Refuses a configuration outside its ranges: throws Error(kUsage) that names the flag.
void check_engine_config(const EngineConfig& config);

/// The type that weights and KV are kept in; with `auto` the checkpoint's, bfloat16 for one of float16. Throws Error(kUsage) for a name
/// that is none.
DType resolve_dtype(const EngineConfig& config, const ModelConfig& model);

/// One rank's part of a loaded model: operators, weights, KV pool, executor. Built in the order of the memory plan; after the constructor
/// nothing is allocated.
class Engine {
 public:
  /// Loads the model. `progress` is called while weights load. Throws Error: a file's fault (kBadModel, kNotSupported), kOutOfMemory with
  /// numbers before anything large is allocated, kUsage for a flag.
  Engine(const EngineConfig& config, const ModelPath& path, const ModelConfig& model, const LoadProgress& progress);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& model_config() const { return model_config_; }
  const MemoryPlan& memory_plan() const { return plan_; }
  DType dtype() const { return dtype_; }
  Executor& executor() { return *executor_; }

  /// The memory plan of a configuration: checks it and computes, allocates nothing.
  static MemoryPlan plan(const EngineConfig& config, const ModelConfig& model);

 private:
  class Model;

  ModelConfig model_config_;
  DType dtype_;
  MemoryPlan plan_;
  ComputePool& pool_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<AttentionBackend> attention_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Executor> executor_;  // last: its worker ends before what it uses
};

}  // namespace minisgl
