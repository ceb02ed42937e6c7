#include "minisgl/llm.h"

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "llm/llm_impl.h"
#include "llm/load_progress.h"
#include "scheduler/validation.h"

namespace minisgl {

namespace {

/// A seed that survives JSON readers whose numbers are doubles.
uint64_t draw_seed() {
  std::random_device device;
  return ((uint64_t{device()} << 32) | device()) >> 11;
}

GenerateResult::Failure to_failure(const Error& error) {
  return {.type = error_kind_name(error.kind()), .message = error.what(), .param = error.param()};
}

GenerateResult new_result(size_t index, int choice, uint64_t seed) {
  GenerateResult result;
  result.index = static_cast<int64_t>(index);
  result.choice = choice;
  result.seed = seed;
  return result;
}

/// The end-of-sequence set: what config.json, generation_config.json or the GGUF file declare, and the tokenizer's own.
std::vector<int32_t> end_of_sequence_ids(const ModelConfig& model, const TokenizerBundle& tokenizer) {
  std::vector<int32_t> ids = model.eos_token_ids;
  if (tokenizer.eos_token_id) ids.push_back(*tokenizer.eos_token_id);
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= model.vocab_size; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

SchedulerConfig scheduler_config(const EngineConfig& config, const MemoryPlan& plan, int64_t vocab_size) {
  SchedulerConfig scheduler;
  scheduler.max_running_requests = config.max_running_requests;
  scheduler.num_pages = plan.num_pages;
  scheduler.page_size = plan.page_size;
  scheduler.max_prefill_tokens = std::min(config.max_prefill_tokens, plan.max_step_tokens);
  scheduler.vocab_size = vocab_size;
  scheduler.cache = config.cache_type == "naive" ? PrefixCacheKind::kNaive : PrefixCacheKind::kRadix;
  scheduler.policy = config.schedule_policy == "lpm" ? SchedulePolicy::kLpm : SchedulePolicy::kFcfs;
  scheduler.admission = config.admission == "full" ? AdmissionPolicy::kFull : AdmissionPolicy::kExpected;
  scheduler.mixed_steps = config.mixed_steps;
  scheduler.overlap = config.overlap;
  return scheduler;
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

LLM::LLM(EngineConfig config) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.config = std::move(config);
  check_engine_config(impl.config);
  const ModelPath path = resolve_model_path(impl.config.model, impl.config.revision);
  const ModelConfig model = load_model_config(path);
  impl.tokenizer = load_tokenizer_bundle(impl.config);

  LoadReporter reporter(impl.config.model);
  impl.engine = std::make_unique<Engine>(impl.config, path, model, [&](int64_t done, int64_t total) { reporter.update(done, total); });
  reporter.finish();

  const MemoryPlan& plan = impl.engine->memory_plan();
  spdlog::info("memory: weights {}, workspaces up to {}, KV up to {} ({} pages of {} tokens); longest sequence {} tokens",
               format_bytes(plan.weight_bytes), format_bytes(plan.workspace_bytes), format_bytes(plan.kv_bytes), plan.num_pages,
               plan.page_size, plan.max_model_len);
  if (const std::string changed = describe_generation_defaults(model.generation); !changed.empty()) {
    spdlog::info("sampling defaults from the model's files: {}", changed);
  }

  impl.limits = {.vocab_size = model.vocab_size,
                 .max_model_len = plan.max_model_len,
                 .page_size = plan.page_size,
                 .num_pages = plan.num_pages,
                 .eos_token_ids = end_of_sequence_ids(model, impl.tokenizer),
                 .generation = model.generation,
                 .tokenizer = impl.tokenizer.tokenizer};
  impl.scheduler = std::make_unique<Scheduler>(impl.engine->executor(), scheduler_config(impl.config, plan, model.vocab_size),
                                               [&impl](const RequestOutput& output) { impl.on_output(output); });
}

LLM::~LLM() = default;

void LLM::abort() noexcept {
  impl_->abort_requested.store(true);
}

std::vector<GenerateResult> LLM::generate(std::span<const GenerateRequest> requests,
                                          const std::function<void(const StreamEvent&)>& on_event) {
  Impl& impl = *impl_;
  if (impl.failed) fail(ErrorKind::kUnavailable, "the engine has failed in an earlier call and must be created anew");
  impl.abort_requested.store(false);
  std::vector<GenerateResult> results;
  std::vector<std::shared_ptr<Request>> submitted;  // by result; null for a request that was refused

  for (size_t index = 0; index < requests.size(); ++index) {
    const SamplingParams& sampling = requests[index].sampling;
    const uint64_t seed = sampling.seed ? *sampling.seed : draw_seed();
    const size_t first = results.size();
    try {
      check_sampling_params(sampling, impl.limits);
      const std::vector<int32_t> prompt = impl.tokenizer.encode(requests[index].prompt);
      for (int choice = 0; choice < sampling.n; ++choice) {
        auto request = make_request(prompt, sampling, seed, choice, impl.limits);
        request->id = results.size();
        results.push_back(new_result(index, choice, seed));
        submitted.push_back(std::move(request));
      }
    } catch (const Error& error) {
      results.resize(first);
      submitted.resize(first);
      results.push_back(new_result(index, 0, seed));
      results.back().error = to_failure(error);
      submitted.emplace_back();
    }
  }

  std::exception_ptr handler_failure;
  const auto deliver = [&](const StreamEvent& event) {
    if (!on_event || handler_failure) return;
    try {
      on_event(event);
    } catch (...) {
      // The scheduler's state must not be torn by a caller's exception: everything ends first.
      handler_failure = std::current_exception();
      impl.abort_requested.store(true);
    }
  };
  impl.on_output = [&](const RequestOutput& output) {
    GenerateResult& result = results[output.request.id];
    if (output.finished) {
      Request& request = *submitted[output.request.id];
      RequestResult& done = request.result;
      result.prompt_token_ids = std::move(request.prompt_token_ids);
      result.finish_reason = done.finish_reason;
      result.matched_stop = done.matched_stop;
      result.cached_tokens = done.cached_tokens;
      result.queue_us = done.queue_us;
      result.prefill_us = done.prefill_us;
      result.decode_us = done.decode_us;
      result.logprobs = std::move(done.logprobs);
      result.prompt_logprobs = std::move(done.prompt_logprobs);
      result.error = std::move(done.error);
      // The event's views are of these: copied, so that they hold while it is delivered.
      result.token_ids = done.token_ids;
      result.text = done.text;
    }
    deliver({.index = result.index,
             .choice = result.choice,
             .text = output.text,
             .token_ids = output.token_ids,
             .finished = output.finished ? &result : nullptr});
  };

  try {
    for (size_t i = 0; i < results.size(); ++i) {
      if (submitted[i]) {
        impl.scheduler->add(submitted[i]);
      } else {
        deliver({.index = results[i].index, .choice = 0, .text = {}, .token_ids = {}, .finished = &results[i]});
      }
    }
    while (impl.scheduler->has_work()) {
      if (impl.abort_requested.load()) {
        impl.scheduler->abort_all();
      } else {
        impl.scheduler->step();
      }
    }
  } catch (...) {
    // The scheduler still holds this call's requests, whose output has nowhere to go.
    impl.failed = true;
    impl.on_output = nullptr;
    throw;
  }
  impl.on_output = nullptr;
  if (handler_failure) std::rethrow_exception(handler_failure);
  return results;
}

}  // namespace minisgl
