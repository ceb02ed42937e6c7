#pragma once

#include <nlohmann/json_fwd.hpp>

#include "minisgl/llm.h"

namespace minisgl {

/// A request from one JSON object: "prompt" (text), "prompt_token_ids" or "messages" (with optional "tools" and "chat_template_kwargs"),
/// plus any field of SamplingParams by its name; "logit_bias" is an object {"id": bias}, "stop" a string or a list. null means unset.
/// Fields not given come from `defaults`. Throws Error(kInvalidRequest) that names the field, its value and what is allowed; ranges are
/// checked where the request is submitted.
GenerateRequest parse_request_json(const nlohmann::ordered_json& object, const SamplingParams& defaults);

/// Sets one field of `sampling` by its JSON name. Returns false if there is no such field; throws as parse_request_json().
bool set_sampling_field(SamplingParams& sampling, const std::string& field, const nlohmann::ordered_json& value);

/// A choice as the command line prints it: prompt_token_ids, token_ids, text, finish_reason, usage, timing, log-probabilities, error.
nlohmann::ordered_json result_to_json(const GenerateResult& result);

}  // namespace minisgl
