#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace minisgl {

/// The `tokenizer.ggml.*` keys of a GGUF file as a plain value: whoever reads the file fills it in, Tokenizer::from_gguf() checks it.
/// A key that the file lacks keeps its default here.
struct GgufVocabulary {
  std::string model;                ///< tokenizer.ggml.model: "gpt2" is byte-level BPE
  std::string pre = "default";      ///< tokenizer.ggml.pre: names the pre-tokenizer
  std::vector<std::string> tokens;  ///< tokenizer.ggml.tokens; the index is the id
  std::vector<int32_t>
      token_types;            ///< tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; may be empty
  std::vector<float> scores;  ///< tokenizer.ggml.scores; may be empty
  std::vector<std::string> merges;  ///< tokenizer.ggml.merges: "left right", best first
  bool add_bos = false;             ///< tokenizer.ggml.add_bos_token
  bool add_eos = false;             ///< tokenizer.ggml.add_eos_token
  bool add_space_prefix = false;    ///< tokenizer.ggml.add_space_prefix
  std::optional<int32_t> bos_id;    ///< tokenizer.ggml.bos_token_id
  std::optional<int32_t> eos_id;    ///< tokenizer.ggml.eos_token_id
  std::optional<int32_t> unk_id;    ///< tokenizer.ggml.unknown_token_id
};

}  // namespace minisgl
