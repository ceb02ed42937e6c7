#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/regex.h"

namespace minisgl {

/// What becomes of the matches of a split.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A text and the parts of it that are still separate: what one pre-tokenizer step hands to the next.
struct SplitText {
  struct Part {
    size_t begin;  ///< byte offsets in `text`
    size_t end;
  };
  std::string text;
  std::vector<Part> parts;  ///< in order, none empty
  /// The first part begins where the text given to Tokenizer::encode() begins.
  bool first_at_start = false;

  std::string_view view(Part part) const { return std::string_view(text).substr(part.begin, part.end - part.begin); }
};

/// The `pre_tokenizer` of a tokenizer.json: cuts a text into the words that merges do not cross. Immutable, shareable between threads.
class PreTokenizer {
 public:
  struct Split {
    std::variant<std::string, Regex> pattern;  ///< a string is not empty
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;  ///< what lies between the matches counts as the match
  };
  /// Cuts at every character of a class.
  struct SplitCharacters {
    bool (*matches)(char32_t) = nullptr;
    SplitBehavior behavior = SplitBehavior::kIsolated;
  };
  /// Keeps runs of word characters and runs of other characters that are not white space.
  struct Whitespace {};
  enum class Prepend { kAlways, kFirst, kNever };
  /// Spells spaces as `replacement` and begins a word at each.
  struct Metaspace {
    std::string replacement;  ///< one character
    Prepend prepend = Prepend::kAlways;
    bool split = true;
  };
  /// Spells bytes as printable characters.
  struct ByteLevel {
    bool add_prefix_space = false;
    std::vector<Regex> split;  ///< GPT-2's expression, or none
  };
  using Step = std::variant<Split, SplitCharacters, Whitespace, Metaspace, ByteLevel>;

  /// GPT-2's expression, which ByteLevel uses.
  static const char* const kGpt2Pattern;

  /// Steps run in the order in which they were added.
  void add(Step step) { steps_.push_back(std::move(step)); }

  /// Whether the last step is ByteLevel: then apply() leaves its words as the bytes they are, for the model to look up, instead of spelling
  /// them out.
  bool ends_in_bytes() const { return !steps_.empty() && std::holds_alternative<ByteLevel>(steps_.back()); }

  /// Splits the parts of `text` further.
  void apply(SplitText& text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace minisgl
