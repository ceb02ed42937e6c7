#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace minisgl {

/// What a model's chat template sees. The order of keys matters: `tojson` prints objects in the order they were written.
struct ChatInputs {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  ///< array of objects with at least `role`
  nlohmann::ordered_json tools;                                       ///< array of tool descriptions, or null for none
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  /// An object (or null) whose entries become top-level variables and win over the fields above (`chat_template_kwargs`).
  nlohmann::ordered_json extra;
  /// The time that `strftime_now(format)` prints, as a broken-down local time; the clock if not set.
  std::optional<std::tm> now;
};

/// Bounds of one rendering. A template comes with the model and is treated as an untrusted program.
struct ChatLimits {
  int64_t max_steps = 10'000'000;        ///< evaluated nodes, loop rounds and elements touched by filters
  size_t max_output_bytes = 16u << 20;   ///< the rendered text, and any one string or list made on the way
  size_t max_memory_bytes = 256u << 20;  ///< everything the template allocates during one rendering, whether still alive or not
};

namespace jinja {
struct Program;
}

/// A compiled Jinja chat template with the semantics of Hugging Face's environment: jinja2's immutable sandbox with `trim_blocks`,
/// `lstrip_blocks`, loop controls, the `generation` tag, `raise_exception`, `strftime_now` and a `tojson` without HTML escaping.
/// Not supported and refused by name: extends, block, include, import, autoescape, translations.
/// Immutable: one object may render on many threads at once.
class ChatTemplate {
 public:
  /// Compiles `source` (UTF-8). Throws Error(kBadModel) that names the line and the construct: wrong syntax, an unknown tag, filter or
  /// test.
  explicit ChatTemplate(std::string source, ChatLimits limits = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The text of the conversation. Throws Error(kInvalidRequest): the template's own `raise_exception(text)`, an operation that Python
  /// would refuse (with the template's line), or a limit. Strings of `inputs` must be valid UTF-8.
  std::string render(const ChatInputs& inputs) const;

  const std::string& source() const;

 private:
  std::shared_ptr<const jinja::Program> program_;
  ChatLimits limits_;
};

}  // namespace minisgl
