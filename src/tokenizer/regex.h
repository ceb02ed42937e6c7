#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace minisgl {

/// A compiled regular expression of a tokenizer: Oniguruma's (Ruby) syntax as far as tokenizers use it, run by PCRE2 with its JIT.
/// Immutable and shareable between threads; RegexSearch does the matching.
class Regex {
 public:
  /// `where` names the pattern in errors ("tokenizer.json: pre_tokenizer.pattern"). Throws Error(kBadModel) when the pattern does not
  /// compile, Error(kNotSupported) for a construct that PCRE2 reads differently.
  Regex(const std::string& pattern, std::string where);

 private:
  friend class RegexSearch;
  std::shared_ptr<const void> code_;
  std::string where_;
};

/// The scratch memory to search texts with one Regex. For one thread; the Regex must outlive it.
class RegexSearch {
 public:
  explicit RegexSearch(const Regex& regex);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;
  RegexSearch& operator=(const RegexSearch&) = delete;

  struct Match {
    size_t begin;
    size_t end;
  };
  /// The next match of a scan over `subject` (valid UTF-8) from left to right; start() begins a scan. An empty match is reported unless
  /// it touches the end of the one before. Throws Error(kInvalidRequest) when the search takes too many steps.
  void start(std::string_view subject);
  std::optional<Match> next();

 private:
  struct Scratch;
  const Regex& regex_;
  std::unique_ptr<Scratch> scratch_;
  std::string_view subject_;
  size_t offset_ = 0;
  size_t last_end_ = std::string_view::npos;
};

}  // namespace minisgl
