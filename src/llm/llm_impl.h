#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "checkpoint/model_config.h"
#include "engine/engine.h"
#include "llm/tokenizer_bundle.h"
#include "minisgl/llm.h"
#include "scheduler/scheduler.h"
#include "scheduler/validation.h"

namespace minisgl {

/// The inside of LLM, for the project's own commands.
struct LLM::Impl {
  EngineConfig config;
  TokenizerBundle tokenizer;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Scheduler> scheduler;                 // after engine: it must go first
  RequestLimits limits;                                 ///< among them the end-of-sequence set
  std::function<void(const RequestOutput&)> on_output;  ///< of the generate() call that runs
  bool failed = false;                                  ///< an exception came out of the scheduler: no further call is possible

  std::atomic<bool> abort_requested{false};
  static_assert(std::atomic<bool>::is_always_lock_free, "abort() is called from signal handlers");

  const ModelConfig& model_config() const { return engine->model_config(); }
  const MemoryPlan& memory_plan() const { return engine->memory_plan(); }
  /// L: longest prompt plus output in tokens.
  int64_t max_model_len() const { return engine->memory_plan().max_model_len; }
};

}  // namespace minisgl
