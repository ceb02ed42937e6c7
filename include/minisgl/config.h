#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace minisgl {

/// Everything that defines an engine before it starts. Defaults are those of the command line.
struct EngineConfig {
  /// Folder in Hugging Face layout, a .gguf file, a hub id in the local cache, or shape:NAME (dummy weights).
  std::string model;
  /// Hub revision for a hub id.
  std::string revision = "main";
  /// Folder or tokenizer.json; empty: the model's own; "none": ids in, ids out.
  std::string tokenizer;
  /// File with a Jinja template that replaces the model's.
  std::string chat_template;
  std::optional<std::string> bos_token;  ///< overrides the text of the BOS token in templates
  std::optional<std::string> eos_token;
  /// "2026-01-15T12:00:00": the time that templates see; empty: the clock.
  std::string now;

  std::string device = "auto";  ///< auto, cpu
  std::string dtype = "auto";   ///< auto (the checkpoint's; float16 and quantised GGUF become bfloat16), float32, bfloat16
  bool dummy_weights = false;   ///< N(0, 0.02), seed 0, norms 1

  int64_t max_running_requests = 256;
  /// Longest prompt plus output in tokens; empty: the model's max_position_embeddings, lowered to the pool.
  std::optional<int64_t> max_model_len;
  /// Largest share of what is free after weights and workspaces that the KV pool may take. On the CPU the default pool is smaller: enough
  /// for 8 sequences of the longest length, at most a quarter of what is free; num_pages asks for more.
  double memory_ratio = 0.9;
  /// KV pages, the dummy page not counted; empty: sized from memory.
  std::optional<int64_t> num_pages;
  /// Tokens per page; empty: 16 on the CPU.
  std::optional<int64_t> page_size;
  /// Most prompt tokens computed in one step.
  int64_t max_prefill_tokens = 8192;
  std::string cache_type = "radix";      ///< radix (what requests begin with alike is computed once), naive (no prefix cache)
  std::string schedule_policy = "fcfs";  ///< fcfs (by arrival), lpm (the longest cached prefix first; nobody is overtaken for ever)
  /// expected: requests are admitted for the output that is likely, and the newest are preempted and computed again where it was not
  /// enough; full: for max_tokens, and nothing is ever preempted.
  std::string admission = "expected";
  bool mixed_steps = false;  ///< prompts and running requests share a step; otherwise prompts come first
  bool overlap = true;       ///< the next step is built while one runs
  /// CPU threads, the calling one included; 0: the CPUs this process may use.
  int threads = 0;
};

}  // namespace minisgl
