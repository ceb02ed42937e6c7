#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace minisgl {
namespace {

using Part = SplitText::Part;

// A stretch of a part: a match of the step's pattern, or what lies between two.
struct Stretch {
  size_t begin;
  size_t end;
  bool is_match;
};

// Collects the stretches that cover one part, in order, from the matches in it.
class Stretches {
 public:
  void start(Part part) {
    list_.clear();
    part_ = part;
    covered_ = part.begin;
  }
  void match(size_t begin, size_t end) {
    if (covered_ < begin) list_.push_back({covered_, begin, false});
    list_.push_back({begin, end, true});
    covered_ = end;
  }
  std::vector<Stretch>& finish() {
    if (covered_ < part_.end) list_.push_back({covered_, part_.end, false});
    return list_;
  }

 private:
  std::vector<Stretch> list_;
  Part part_{};
  size_t covered_ = 0;
};

// Turns the stretches of one part into parts.
void split(const std::vector<Stretch>& stretches, SplitBehavior behavior, std::vector<Part>& parts) {
  const size_t first = parts.size();
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Stretch& s : stretches) {
        if (!s.is_match) parts.push_back({s.begin, s.end});
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Stretch& s : stretches) parts.push_back({s.begin, s.end});
      break;
    case SplitBehavior::kContiguous:
      for (const Stretch& s : stretches) {
        if (s.is_match == previous_match && parts.size() > first) {
          parts.back().end = s.end;
        } else {
          parts.push_back({s.begin, s.end});
        }
        previous_match = s.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Stretch& s : stretches) {
        if (s.is_match && !previous_match && parts.size() > first) {
          parts.back().end = s.end;
        } else {
          parts.push_back({s.begin, s.end});
        }
        previous_match = s.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
        if (s->is_match && !previous_match && parts.size() > first) {
          parts.back().begin = s->begin;
        } else {
          parts.push_back({s->begin, s->end});
        }
        previous_match = s->is_match;
      }
      std::reverse(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end());
      break;
  }
  // An expression may match nothing at all between two characters.
  parts.erase(std::remove_if(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end(), [](Part p) { return p.begin == p.end; }),
              parts.end());
}

// Replaces the parts of `text` by what the stretches of each give: `find(part, stretches)` reports the matches.
template <typename Find>
void split_parts(SplitText& text, SplitBehavior behavior, bool invert, Find find) {
  std::vector<Part> parts;
  parts.reserve(text.parts.size());
  Stretches stretches;
  const bool had_start = text.first_at_start && !text.parts.empty();
  const size_t start = had_start ? text.parts.front().begin : 0;
  for (const Part part : text.parts) {
    stretches.start(part);
    find(part, stretches);
    std::vector<Stretch>& list = stretches.finish();
    if (invert) {
      for (Stretch& s : list) s.is_match = !s.is_match;
    }
    split(list, behavior, parts);
  }
  text.parts = std::move(parts);
  text.first_at_start = had_start && !text.parts.empty() && text.parts.front().begin == start;
}

void split_by_regex(SplitText& text, const Regex& regex, SplitBehavior behavior, bool invert) {
  RegexSearch search(regex);
  split_parts(text, behavior, invert, [&](Part part, Stretches& stretches) {
    search.start(text.view(part));
    while (const auto match = search.next()) stretches.match(part.begin + match->begin, part.begin + match->end);
  });
}

void split_by_string(SplitText& text, const std::string& pattern, SplitBehavior behavior, bool invert) {
  split_parts(text, behavior, invert, [&](Part part, Stretches& stretches) {
    const std::string_view view = text.view(part);
    for (size_t at = view.find(pattern); at != std::string_view::npos; at = view.find(pattern, at + pattern.size())) {
      stretches.match(part.begin + at, part.begin + at + pattern.size());
    }
  });
}

// Rewrites every part of `text` with `rewrite(part, is_first_at_start, out)`, which appends the new text of the part to `out`.
template <typename Rewrite>
void rewrite_parts(SplitText& text, Rewrite rewrite) {
  std::string result;
  result.reserve(text.text.size() + text.text.size() / 2);
  bool at_start = text.first_at_start;
  for (Part& part : text.parts) {
    const size_t begin = result.size();
    rewrite(text.view(part), at_start, result);
    part = {begin, result.size()};
    at_start = false;
  }
  text.text = std::move(result);
}

void apply_step(const PreTokenizer::Split& step, bool, SplitText& text) {
  if (const auto* literal = std::get_if<std::string>(&step.pattern)) {
    split_by_string(text, *literal, step.behavior, step.invert);
  } else {
    split_by_regex(text, std::get<Regex>(step.pattern), step.behavior, step.invert);
  }
}

void apply_step(const PreTokenizer::SplitCharacters& step, bool, SplitText& text) {
  split_parts(text, step.behavior, false, [&](Part part, Stretches& stretches) {
    for (size_t offset = part.begin; offset < part.end;) {
      const size_t begin = offset;
      if (step.matches(next_code_point(text.text, offset))) stretches.match(begin, offset);
    }
  });
}

void apply_step(const PreTokenizer::Whitespace&, bool, SplitText& text) {
  enum class Kind { kSpace, kWord, kOther };
  auto kind = [](char32_t c) { return is_word(c) ? Kind::kWord : is_white_space(c) ? Kind::kSpace : Kind::kOther; };
  split_parts(text, SplitBehavior::kRemoved, true, [&](Part part, Stretches& stretches) {
    for (size_t offset = part.begin; offset < part.end;) {
      const size_t begin = offset;
      const Kind run = kind(next_code_point(text.text, offset));
      for (size_t next = offset; next < part.end; offset = next) {
        if (kind(next_code_point(text.text, next)) != run) break;
      }
      if (run != Kind::kSpace) stretches.match(begin, offset);
    }
  });
}

void apply_step(const PreTokenizer::Metaspace& step, bool, SplitText& text) {
  rewrite_parts(text, [&](std::string_view part, bool at_start, std::string& out) {
    const bool wanted = step.prepend == PreTokenizer::Prepend::kAlways || (step.prepend == PreTokenizer::Prepend::kFirst && at_start);
    if (wanted && !part.starts_with(' ') && !part.starts_with(step.replacement)) out += step.replacement;
    for (const char c : part) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  if (step.split) split_by_string(text, step.replacement, SplitBehavior::kMergedWithNext, false);
}

void apply_step(const PreTokenizer::ByteLevel& step, bool is_last, SplitText& text) {
  if (step.add_prefix_space) {
    rewrite_parts(text, [](std::string_view part, bool, std::string& out) {
      if (!part.starts_with(' ')) out += ' ';
      out += part;
    });
  }
  for (const Regex& regex : step.split) split_by_regex(text, regex, SplitBehavior::kIsolated, false);
  if (!is_last) rewrite_parts(text, [](std::string_view part, bool, std::string& out) { out += byte_level_encode(part); });
}

}  // namespace

const char* const PreTokenizer::kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void PreTokenizer::apply(SplitText& text) const {
  for (const Step& step : steps_) {
    const bool is_last = &step == &steps_.back();
    std::visit([&](const auto& s) { apply_step(s, is_last, text); }, step);
  }
}

}  // namespace minisgl
