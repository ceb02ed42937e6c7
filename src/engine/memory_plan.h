#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/model_config.h"
#include "kvcache/kv_pool.h"
#include "minisgl/config.h"

namespace minisgl {

/// What the system could still give this process, in bytes: the smaller of the machine's available memory (MemAvailable) and what the
/// limits of its cgroups leave, counting cached files as available.
size_t available_memory_bytes();

/// How the memory of one engine is divided, once, before anything is allocated (contract 10): weights, then the largest workspaces, then
/// the KV pages from what is left.
///
/// Not counted is the scratch memory inside operators and sampler, which no request can make larger than: 512 rows of the widest input of
/// a linear layer in float32; per thread one tile of attention (some 200 KiB) and 12 bytes per vocabulary entry for sampling. It is
/// small beside the weights that the same widths imply.
struct MemoryPlan {
  size_t available_bytes = 0;  ///< before anything was loaded
  size_t weight_bytes = 0;
  size_t workspace_bytes = 0;  ///< activations, logits, RoPE table, page table and token pool; resident only as far as used
  size_t kv_bytes = 0;         ///< of num_pages pages and the dummy page; resident only as far as used
  size_t page_bytes = 0;       ///< of one page in all layers
  int64_t page_size = 0;       ///< tokens
  int64_t num_pages = 0;
  int64_t kv_tokens = 0;      ///< num_pages * page_size
  int64_t max_model_len = 0;  ///< longest prompt plus output, tokens
  int64_t max_running_requests = 0;
  int64_t max_step_tokens = 0;  ///< most tokens of one step
};

/// Refuses weights that do not fit into memory: throws Error(kOutOfMemory) with the numbers.
void check_weights_fit(size_t weight_bytes, size_t available_bytes, const std::string& model, DType dtype);

/// Tokens per page: config.page_size, by default 16 on the CPU.
int64_t resolve_page_size(const EngineConfig& config);

/// The CPU computes no more tokens in a step, whatever max_prefill_tokens allows: rows beyond a few hundred gain nothing, a step is the
/// time that an abort waits, and every token of a step has activations in memory.
inline constexpr int64_t kMaxCpuStepTokens = 512;

/// Most tokens of one step: a whole prefill budget, or one token of every running request.
int64_t max_step_tokens(const EngineConfig& config, int64_t max_model_len);

/// The bytes of activations, logits and all tables if the longest sequence has L tokens; does not shrink as L grows.
using WorkspaceBytes = std::function<size_t(int64_t max_model_len)>;

/// Sizes L and the KV pool on the CPU; arithmetic only. Without --num-pages the pool is enough for 8 sequences of L, at most a quarter of
/// the memory that is free after weights and workspaces, at most memory_ratio of it. L is --max-model-len, by default
/// max_position_embeddings, which no memory need allow for: that L is lowered, with a line that says so, to the longest whose tables fit
/// and that the pool holds once. An explicit L may be larger than the pool or (with a warning) than the model's, but its tables must fit.
/// Throws Error(kOutOfMemory) with the numbers and the flag to change.
MemoryPlan plan_memory(const EngineConfig& config, const ModelConfig& model, const CacheGroup& group, size_t available_bytes,
                       size_t weight_bytes, const WorkspaceBytes& workspace_bytes);

/// "1.5 GiB", "130.2 MiB": for messages.
std::string format_bytes(size_t bytes);

}  // namespace minisgl
