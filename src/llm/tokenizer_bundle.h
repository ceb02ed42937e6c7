#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/config.h"
#include "minisgl/llm.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {

/// Everything between text and token ids that belongs to a model: loaded without its weights. Immutable.
struct TokenizerBundle {
  std::optional<Tokenizer> tokenizer;         ///< nothing with --tokenizer none
  std::optional<ChatTemplate> chat_template;  ///< nothing if the model has none or it cannot be used
  /// Why there is no chat template: one line.
  std::string chat_template_problem;
  std::string bos_token;  ///< text, as templates see it; may be empty
  std::string eos_token;
  std::optional<int32_t> eos_token_id;  ///< of the end-of-sequence token that the tokenizer's files name, an override aside
  std::optional<std::tm> now;           ///< the time that templates see; nothing: the clock

  /// Throws Error(kNotSupported) with the reason if there is none.
  const Tokenizer& require_tokenizer() const;
  const ChatTemplate& require_chat_template() const;

  /// The text of a conversation. `add_generation_prompt` asks for the opening of the assistant's turn. Throws Error(kInvalidRequest) for
  /// malformed JSON (naming the field) and for what the template refuses.
  std::string render(const ChatPrompt& prompt, bool add_generation_prompt = true) const;
  /// Token ids of a prompt: text with the special tokens that the tokenizer adds, a rendered conversation without, ids as they are.
  std::vector<int32_t> encode(const Prompt& prompt) const;
};

/// Loads tokenizer and template of config.model (config.tokenizer, chat_template, bos_token, eos_token and now override the model's). Needs
/// only tokenizer.json of a folder, or the header of a GGUF file. Throws Error that names the file. A template that does not compile is
/// an error only if it was given explicitly: text prompts work without it.
TokenizerBundle load_tokenizer_bundle(const EngineConfig& config);

}  // namespace minisgl
