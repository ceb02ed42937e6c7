#pragma once

#include <cstdint>
#include <string>

namespace minisgl {

/// The decoder chain of a tokenizer, run as a stream.
class TextDecoder {
 public:
  /// What the chain remembers between two tokens.
  struct State {
    std::string held;         ///< bytes that are not text yet: an unfinished character, or a run of byte tokens
    int64_t tokens = 0;       ///< tokens seen
    int32_t stripped = 0;     ///< characters already removed from the start of the text
    bool text_begun = false;  ///< a character that the start strip keeps has been seen
    int32_t held_strip = 0;   ///< trailing characters that the end strip may still remove
  };
};

}  // namespace minisgl
