#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/request.h"
#include "scheduler/stop_matcher.h"
#include "tokenizer/detokenizer.h"

namespace minisgl {

/// The text of one request as its tokens come: detokenised to whole characters, cut at the first stop string.
class TextStream {
 public:
  /// Without a tokenizer the text stays empty.
  explicit TextStream(const Request& request);

  /// Appends the text that a token makes certain. Returns the stop string that is now complete, or null; nothing may follow then.
  const std::string* push(int32_t token_id, bool allow_stop, std::string& text);
  /// The output has ended: appends what was held back. May complete a stop string, as push().
  const std::string* finish(bool allow_stop, std::string& text);

 private:
  const std::string* match(bool allow_stop, std::string& text);

  std::optional<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  std::string piece_;
};

}  // namespace minisgl
