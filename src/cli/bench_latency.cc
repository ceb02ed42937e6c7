#include <fmt/format.h>

#include <algorithm>

#include "base/compute_pool.h"
#include "base/error.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_path.h"
#include "cli/bench_record.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "engine/engine.h"
#include "ops/cpu/cpu_probe.h"

namespace minisgl::cli {

namespace {

constexpr int kExitInterrupted = 130;

/// Multiplications that one token's linear layers need, the head left out; of a mixture of experts only the chosen ones.
int64_t layer_parameters(const ModelConfig& config) {
  const int64_t q = config.num_heads * config.head_dim;
  const int64_t kv = config.num_kv_heads * config.head_dim;
  int64_t total = 0;
  for (const LayerConfig& layer : config.layers) {
    total += config.hidden_size * (2 * q + 2 * kv);
    total += layer.sparse ? config.moe.experts_per_token * 3 * config.hidden_size * config.moe.moe_intermediate_size +
                                config.moe.num_experts * config.hidden_size
                          : 3 * config.hidden_size * config.intermediate_size;
  }
  return total;
}

/// Bytes that computing one token at context length `context` must read: every weight once, and the keys and values.
double decode_bytes(const ModelConfig& config, DType dtype, double context) {
  const int64_t head = config.vocab_size * config.hidden_size;
  const double kv = 2.0 * static_cast<double>(config.num_layers * config.num_kv_heads * config.head_dim) * context;
  return static_cast<double>(dtype_size(dtype)) * (static_cast<double>(layer_parameters(config) + head) + kv);
}

/// Floating-point operations of a prompt of `tokens`: linear layers, the head for the last token, causal attention.
double prefill_flops(const ModelConfig& config, double tokens) {
  const auto layers = static_cast<double>(layer_parameters(config));
  const auto head = static_cast<double>(config.vocab_size * config.hidden_size);
  const auto attention = static_cast<double>(config.num_layers * config.num_heads * config.head_dim);
  return 2 * layers * tokens + 2 * head + 4 * attention * tokens * (tokens + 1) / 2;
}

int64_t positive(const Flags& flags, std::string_view name, int64_t fallback, int64_t least) {
  const int64_t value = flags.get_int(name).value_or(fallback);
  if (value < least) fail_param(ErrorKind::kUsage, std::string(name), "--{} is {}; it must be at least {}", name, value, least);
  return value;
}

}  // namespace

int run_bench_latency(const Flags& flags) {
  EngineConfig engine = engine_config(flags);
  const int64_t prompt_tokens = positive(flags, "prompt-tokens", 512, 1);
  const int64_t output_tokens = positive(flags, "output-tokens", 64, 2);
  const int64_t runs = positive(flags, "runs", 5, 1);
  const ModelConfig config = load_model_config(resolve_model_path(engine.model, engine.revision));
  const DType dtype = resolve_dtype(engine, config);
  engine.tokenizer = "none";
  if (!engine.max_model_len.has_value()) engine.max_model_len = std::min(config.max_position_embeddings, prompt_tokens + output_tokens + 1);
  const std::string model = engine.model;

  LLM llm(std::move(engine));
  InterruptGuard interrupt(llm);
  ComputePool& pool = process_compute_pool();

  GenerateRequest request;
  TokenPrompt prompt;
  for (int64_t i = 0; i < prompt_tokens; ++i) prompt.token_ids.push_back(static_cast<int32_t>((i * 7919 + 13) % config.vocab_size));
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = output_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;

  // Probes and runs take turns, so that both see the same neighbours; the limit is the best probe.
  cpu::CpuProbe probe(pool, cpu::select_isa());
  double read_gbps = 0;
  double fma_gflops = 0;
  std::vector<double> prefill_rate;
  std::vector<double> decode_rate;
  std::vector<double> first_token_ms;
  for (int64_t run = 0; run <= runs; ++run) {
    read_gbps = std::max(read_gbps, probe.read_bandwidth_gbps());
    fma_gflops = std::max(fma_gflops, probe.fma_gflops());
    const std::vector<GenerateResult> results = llm.generate(std::span(&request, 1));
    const GenerateResult& result = results.front();
    if (interrupt.interrupted()) return kExitInterrupted;
    if (result.error.has_value()) fail(ErrorKind::kInvalidRequest, "{}", result.error->message);
    if (run == 0) continue;  // warms caches and touches memory
    prefill_rate.push_back(static_cast<double>(prompt_tokens) * 1e6 / static_cast<double>(std::max<int64_t>(result.prefill_us, 1)));
    decode_rate.push_back(static_cast<double>(output_tokens - 1) * 1e6 / static_cast<double>(std::max<int64_t>(result.decode_us, 1)));
    first_token_ms.push_back(static_cast<double>(result.queue_us + result.prefill_us) / 1e3);
  }

  BenchRecord record;
  record.model = model;
  record.device = "cpu";
  record.dtype = dtype_name(dtype);
  record.flags = {{"prompt_tokens", prompt_tokens}, {"output_tokens", output_tokens}, {"threads", pool.threads()}};
  record.probes = {{"read_gbps", read_gbps}, {"fma_gflops", fma_gflops}};
  const double mean_context = static_cast<double>(prompt_tokens) + static_cast<double>(output_tokens) / 2;
  std::vector<BenchRecord> records;
  const auto add = [&](const char* what, const char* unit, std::vector<double> samples, double limit) {
    record.what = what;
    record.unit = unit;
    record.samples = std::move(samples);
    record.limit = limit;
    records.push_back(record);
  };
  add("latency.prefill", "tokens/s", std::move(prefill_rate),
      static_cast<double>(prompt_tokens) * fma_gflops * 1e9 / prefill_flops(config, static_cast<double>(prompt_tokens)));
  add("latency.decode", "tokens/s", std::move(decode_rate), read_gbps * 1e9 / decode_bytes(config, dtype, mean_context));
  add("latency.first_token", "ms", std::move(first_token_ms), 0);

  if (flags.get_bool("json")) {
    for (const BenchRecord& r : records) write_stdout(r.to_json().dump() + "\n");
    return 0;
  }
  write_stdout(fmt::format("{} {} on cpu, {} threads, prompt {} tokens, output {} tokens\n", model, dtype_name(dtype), pool.threads(),
                           prompt_tokens, output_tokens));
  write_stdout(fmt::format("probes in this run: read {:.1f} GB/s, float32 FMA {:.0f} GFLOP/s\n", read_gbps, fma_gflops));
  for (const BenchRecord& r : records) write_stdout(r.to_text() + "\n");
  return 0;
}

}  // namespace minisgl::cli
