#include "cli/command_options.h"

#include <charconv>
#include <limits>

#include "base/compute_pool.h"
#include "base/error.h"
#include "scheduler/validation.h"

namespace minisgl::cli {

namespace {

/// "42:-100,7:1.5".
std::vector<std::pair<int32_t, double>> parse_logit_bias(const std::string& text) {
  std::vector<std::pair<int32_t, double>> bias;
  const char* cursor = text.data();
  const char* end = cursor + text.size();
  while (true) {
    int32_t id = 0;
    double value = 0;
    const auto parsed_id = std::from_chars(cursor, end, id);
    const bool has_value = parsed_id.ec == std::errc{} && parsed_id.ptr != end && *parsed_id.ptr == ':';
    const auto parsed_value =
        has_value ? std::from_chars(parsed_id.ptr + 1, end, value) : std::from_chars_result{cursor, std::errc::invalid_argument};
    if (parsed_value.ec != std::errc{} || (parsed_value.ptr != end && *parsed_value.ptr != ',')) {
      fail_param(ErrorKind::kUsage, "logit-bias", "--logit-bias is '{}'; it must be ID:BIAS pairs, such as 42:-100,7:1.5", text);
    }
    bias.emplace_back(id, value);
    if (parsed_value.ptr == end) return bias;
    cursor = parsed_value.ptr + 1;
  }
}

int to_int(const Flags& flags, std::string_view name, int fallback) {
  const int64_t value = flags.get_int(name).value_or(fallback);
  if (value < INT32_MIN || value > INT32_MAX) {
    fail_param(ErrorKind::kUsage, std::string(name), "--{} is {}; it must fit 32 bits", name, value);
  }
  return static_cast<int>(value);
}

}  // namespace

EngineConfig engine_config(const Flags& flags) {
  EngineConfig config;
  const auto model = flags.get_string("model");
  if (!model.has_value() || model->empty()) {
    fail_param(ErrorKind::kUsage, "model", "--model is missing: give a folder, a .gguf file, a hub id in the local cache or shape:NAME");
  }
  config.model = *model;
  config.revision = flags.get_string("revision", config.revision);
  config.tokenizer = flags.get_string("tokenizer", "");
  config.chat_template = flags.get_string("chat-template", "");
  config.bos_token = flags.get_string("bos-token");
  config.eos_token = flags.get_string("eos-token");
  config.now = flags.get_string("now", "");
  config.device = flags.get_string("device", config.device);
  config.dtype = flags.get_string("dtype", config.dtype);
  config.dummy_weights = flags.get_bool("dummy-weights");
  config.max_running_requests = flags.get_int("max-running-requests").value_or(config.max_running_requests);
  config.max_model_len = flags.get_int("max-model-len");
  config.memory_ratio = flags.get_float("memory-ratio").value_or(config.memory_ratio);
  config.num_pages = flags.get_int("num-pages");
  config.page_size = flags.get_int("page-size");
  config.max_prefill_tokens = flags.get_int("max-prefill-tokens").value_or(config.max_prefill_tokens);
  config.cache_type = flags.get_string("cache-type", config.cache_type);
  config.schedule_policy = flags.get_string("schedule-policy", config.schedule_policy);
  config.admission = flags.get_string("admission", config.admission);
  config.mixed_steps = flags.get_bool("mixed-steps");
  config.overlap = !flags.get_bool("no-overlap");
  config.threads = check_threads(flags.get_int("threads").value_or(0));
  return config;
}

SamplingParams sampling_params(const Flags& flags) {
  SamplingParams sampling;
  sampling.max_tokens = flags.get_int("max-tokens");
  sampling.temperature = flags.get_float("temperature");
  sampling.top_k = flags.get_int("top-k");
  sampling.top_p = flags.get_float("top-p");
  sampling.min_p = flags.get_float("min-p");
  sampling.seed = flags.get_uint64("seed");
  sampling.n = to_int(flags, "n", 1);
  sampling.stop = flags.get_list("stop");
  sampling.stop_token_ids = flags.get_ids("stop-token-ids");
  sampling.ignore_eos = flags.get_bool("ignore-eos");
  sampling.min_tokens = flags.get_int("min-tokens").value_or(0);
  sampling.presence_penalty = flags.get_float("presence-penalty").value_or(0);
  sampling.frequency_penalty = flags.get_float("frequency-penalty").value_or(0);
  sampling.repetition_penalty = flags.get_float("repetition-penalty");
  if (const auto bias = flags.get_string("logit-bias")) sampling.logit_bias = parse_logit_bias(*bias);
  sampling.logprobs = to_int(flags, "logprobs", -1);
  sampling.prompt_logprobs = to_int(flags, "prompt-logprobs", -1);
  try {
    RequestLimits limits;
    limits.vocab_size = std::numeric_limits<int32_t>::max();
    check_sampling_params(sampling, limits);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, error.what(), error.param());
  }
  return sampling;
}

}  // namespace minisgl::cli
