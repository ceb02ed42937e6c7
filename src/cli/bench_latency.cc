#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

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
#include "llm/llm_impl.h"
#include "ops/cpu/cpu_probe.h"

namespace minisgl::cli {

namespace {

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

/// Positions that the last of `context` tokens sees in a layer.
double visible(const LayerConfig& layer, double context) {
  return layer.sliding_window > 0 ? std::min(context, static_cast<double>(layer.sliding_window)) : context;
}

/// Bytes that computing one token at context length `context` must read: every weight once, and the keys and values.
double decode_bytes(const ModelConfig& config, DType dtype, double context) {
  const int64_t head = config.vocab_size * config.hidden_size;
  double positions = 0;  // that all layers together attend to
  for (const LayerConfig& layer : config.layers) positions += visible(layer, context);
  const double kv = 2.0 * static_cast<double>(config.num_kv_heads * config.head_dim) * positions;
  return static_cast<double>(dtype_size(dtype)) * (static_cast<double>(layer_parameters(config) + head) + kv);
}

/// Floating-point operations of a prompt of `tokens`: linear layers, the head for the last token, causal attention.
double prefill_flops(const ModelConfig& config, double tokens) {
  const auto layers = static_cast<double>(layer_parameters(config));
  const auto head = static_cast<double>(config.vocab_size * config.hidden_size);
  double pairs = 0;  // of query and key in all layers
  for (const LayerConfig& layer : config.layers) {
    const double window = visible(layer, tokens);
    pairs += window * (window + 1) / 2 + (tokens - window) * window;
  }
  return 2 * layers * tokens + 2 * head + 4 * static_cast<double>(config.num_heads * config.head_dim) * pairs;
}

int64_t get_count(const Flags& flags, std::string_view name, int64_t fallback, int64_t least) {
  constexpr int64_t kMost = 1'000'000;
  const int64_t value = flags.get_int(name).value_or(fallback);
  if (value < least || value > kMost) {
    fail_param(ErrorKind::kUsage, std::string(name), "--{} is {}; it must be between {} and {}", name, value, least, kMost);
  }
  return value;
}

}  // namespace

int run_bench_latency(const Flags& flags) {
  EngineConfig engine = engine_config(flags);
  const int64_t prompt_tokens = get_count(flags, "prompt-tokens", 512, 1);
  const int64_t output_tokens = get_count(flags, "output-tokens", 64, 2);
  const int64_t runs = get_count(flags, "runs", 5, 1);
  const ModelConfig config = load_model_config(resolve_model_path(engine.model, engine.revision));
  const DType dtype = resolve_dtype(engine, config);
  engine.tokenizer = "none";
  engine.cache_type = "naive";  // the same prompt again and again must be computed each time
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
  const cpu::Isa isa = cpu::select_isa();
  cpu::CpuProbe probe(pool, isa);
  double read_gbps = 0;
  double fma_gflops = 0;
  std::vector<double> prefill_rate;
  std::vector<double> decode_rate;
  std::vector<double> first_token_ms;
  for (int64_t run = 0; run <= runs; ++run) {
    read_gbps = std::max(read_gbps, probe.read_bandwidth_gbps());
    fma_gflops = std::max(fma_gflops, probe.fma_gflops());
    if (interrupt.interrupted()) return kExitInterrupted;
    const auto start = std::chrono::steady_clock::now();
    std::optional<std::chrono::steady_clock::time_point> first_token;
    const std::vector<GenerateResult> results = llm.generate(std::span(&request, 1), [&](const StreamEvent& event) {
      if (!first_token.has_value() && !event.token_ids.empty()) first_token = std::chrono::steady_clock::now();
    });
    const GenerateResult& result = results.front();
    if (interrupt.interrupted()) return kExitInterrupted;
    if (result.error.has_value()) fail(ErrorKind::kInvalidRequest, "{}", result.error->message);
    if (static_cast<int64_t>(result.token_ids.size()) != output_tokens) {
      fail_param(ErrorKind::kUsage, "output-tokens",
                 "--prompt-tokens {} and --output-tokens {} do not fit into the context of {} tokens; --max-model-len raises it",
                 prompt_tokens, output_tokens, llm.impl().max_model_len());
    }
    if (run == 0) continue;  // warms caches and touches memory
    prefill_rate.push_back(static_cast<double>(prompt_tokens) * 1e6 / static_cast<double>(std::max<int64_t>(result.prefill_us, 1)));
    decode_rate.push_back(static_cast<double>(output_tokens - 1) * 1e6 / static_cast<double>(std::max<int64_t>(result.decode_us, 1)));
    first_token_ms.push_back(std::chrono::duration<double, std::milli>(*first_token - start).count());
  }

  BenchRecord record;
  record.model = model;
  record.device = "cpu";
  record.dtype = dtype_name(dtype);
  record.flags = {
      {"prompt_tokens", prompt_tokens}, {"output_tokens", output_tokens}, {"threads", pool.threads()}, {"isa", cpu::isa_name(isa)}};
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
