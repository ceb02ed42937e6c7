#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_path.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/sections.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"

namespace minisgl::cli {

namespace {

using Json = nlohmann::ordered_json;

Json configuration(const ModelConfig& config) {
  Json json = {
      {"architecture", config.architecture},
      {"parameters", config.parameter_count()},
      {"layers", config.num_layers},
      {"hidden_size", config.hidden_size},
      {"heads", config.num_heads},
      {"kv_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"intermediate_size", config.intermediate_size},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.max_position_embeddings},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"rope", fmt::format("{} (theta {:g}, factor {:g})", rope_kind_name(config.rope.kind), config.rope.theta, config.rope.factor)}};
  if (config.has_sparse_layers()) {
    json["experts"] = config.moe.num_experts;
    json["experts_per_token"] = config.moe.experts_per_token;
    json["moe_intermediate_size"] = config.moe.moe_intermediate_size;
  }
  if (config.has_sliding_window()) {
    int64_t windowed = 0;
    int64_t window = 0;
    for (const LayerConfig& layer : config.layers) {
      windowed += layer.sliding_window > 0 ? 1 : 0;
      window = std::max(window, layer.sliding_window);
    }
    json["sliding_window"] = fmt::format("{} tokens in {} of {} layers", window, windowed, config.num_layers);
  }
  json["eos_token_ids"] = config.eos_token_ids;
  return json;
}

Json weights(const ModelPath& path, const ModelConfig& config) {
  if (path.format == ModelFormat::kShape) return {{"source", "dummy"}, {"dtype", dtype_name(config.dtype)}};
  const auto checkpoint = open_checkpoint(path);
  Json types = Json::object();
  for (const std::string_view name : checkpoint->names()) {
    const TensorInfo& info = checkpoint->info(name);
    const auto count = types.value(info.stored_type, int64_t{0});
    types[info.stored_type] = count + 1;
  }
  return {{"source", checkpoint->source()},
          {"tensors", checkpoint->names().size()},
          {"tensors_by_type", types},
          {"bytes", checkpoint->total_bytes()},
          {"size", format_bytes(checkpoint->total_bytes())}};
}

Json memory(const MemoryPlan& plan, DType dtype) {
  return {{"dtype", dtype_name(dtype)},
          {"available", format_bytes(plan.available_bytes)},
          {"weights", format_bytes(plan.weight_bytes)},
          {"workspace", format_bytes(plan.workspace_bytes)},
          {"kv_cache", format_bytes(plan.kv_bytes)},
          {"kv_pages", plan.num_pages},
          {"page_size_tokens", plan.page_size},
          {"kv_tokens", plan.kv_tokens},
          {"kv_bytes_per_token", plan.page_bytes / static_cast<size_t>(plan.page_size)},
          {"max_model_len", plan.max_model_len},
          {"max_running_requests", plan.max_running_requests},
          {"max_step_tokens", plan.max_step_tokens}};
}

}  // namespace

int run_info(const Flags& flags) {
  const EngineConfig engine = engine_config(flags);
  check_engine_config(engine);
  const ModelPath path = resolve_model_path(engine.model, engine.revision);
  const ModelConfig config = load_model_config(path);
  Json sections = {{"configuration", configuration(config)}, {"weights", weights(path, config)}};
  // What a model is can be told even of one that does not fit here.
  std::optional<Error> refusal;
  try {
    sections["memory_plan"] = memory(Engine::plan(engine, config), resolve_dtype(engine, config));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOutOfMemory) throw;
    sections["memory_plan"] = {{"error", error.what()}};
    refusal = error;
  }
  if (flags.get_bool("json")) {
    write_stdout(sections.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    print_sections(sections);
  }
  if (refusal.has_value()) throw Error(*refusal);
  return 0;
}

}  // namespace minisgl::cli
