#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tokenizer/regex.h"

namespace minisgl {

/// A string or regular expression and what to put in the place of its matches.
struct Replacement {
  std::variant<std::string, Regex> pattern;  ///< a string is not empty
  std::string content;

  std::string apply(std::string_view text) const;
};

/// The `normalizer` of a tokenizer.json: rewrites a text before it is split. Immutable, shareable between threads.
class Normalizer {
 public:
  struct UnicodeForm {
    bool compose = false;        ///< NFC and NFKC
    bool compatibility = false;  ///< NFKC and NFKD
  };
  struct Lowercase {};
  struct Strip {
    bool left = false;
    bool right = false;
  };
  struct StripAccents {};
  struct Prepend {
    std::string text;
  };
  struct ByteLevel {};
  using Step = std::variant<UnicodeForm, Lowercase, Strip, StripAccents, Replacement, Prepend, ByteLevel>;

  /// Steps run in the order in which they were added.
  void add(Step step) { steps_.push_back(std::move(step)); }

  /// Rewrites `text` (valid UTF-8) in place.
  void apply(std::string& text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace minisgl
