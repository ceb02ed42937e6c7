#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

/// Finds stop strings in a text that arrives in pieces, byte by byte (one Knuth-Morris-Pratt automaton per string), so that borders between
/// tokens do not matter. The first string to be complete ends the text; of several that end at the same byte, the longest. Text that may
/// still become part of a stop string is held back. The work per byte does not depend on how much came before.
class StopMatcher {
 public:
  /// None of `stops` is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Takes the next piece and appends to `out` what is certain to lie before any stop string. Returns the index of the string that is now
  /// complete - `out` then ends right before it, and the matcher must not be used again - or -1. With `allow_match` false a complete string
  /// is passed over as ordinary text.
  int push(std::string_view piece, bool allow_match, std::string& out);
  /// The text has ended: appends what was held back.
  void finish(std::string& out);

  const std::string& stop(int index) const { return stops_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::string> stops_;
  std::vector<std::vector<uint32_t>> failure_;  // [string][i]: longest proper border of the first i + 1 bytes
  std::vector<uint32_t> matched_;               // [string]: bytes of it that the text now ends with
  std::string pending_;                         // at least as long as every matched_
};

}  // namespace minisgl
