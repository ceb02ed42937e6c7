#include "scheduler/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace minisgl {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)), matched_(stops_.size(), 0) {
  for (const std::string& stop : stops_) {
    MINISGL_CHECK(!stop.empty());
    std::vector<uint32_t>& failure = failure_.emplace_back(stop.size(), 0);
    for (size_t i = 1, border = 0; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) border = failure[border - 1];
      if (stop[i] == stop[border]) ++border;
      failure[i] = static_cast<uint32_t>(border);
    }
  }
}

int StopMatcher::push(std::string_view piece, bool allow_match, std::string& out) {
  for (const char byte : piece) {
    pending_.push_back(byte);
    int found = -1;
    for (size_t s = 0; s < stops_.size(); ++s) {
      const std::string& stop = stops_[s];
      uint32_t& matched = matched_[s];
      while (matched > 0 && stop[matched] != byte) matched = failure_[s][matched - 1];
      if (stop[matched] == byte) ++matched;
      if (matched < stop.size()) continue;
      if (allow_match && (found < 0 || stop.size() > stops_[static_cast<size_t>(found)].size())) found = static_cast<int>(s);
      matched = failure_[s][matched - 1];
    }
    if (found >= 0) {
      out.append(pending_, 0, pending_.size() - stops_[static_cast<size_t>(found)].size());
      pending_.clear();
      return found;
    }
  }
  const uint32_t held = matched_.empty() ? 0 : *std::max_element(matched_.begin(), matched_.end());
  out.append(pending_, 0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return -1;
}

void StopMatcher::finish(std::string& out) {
  out += pending_;
  pending_.clear();
  std::fill(matched_.begin(), matched_.end(), 0);
}

}  // namespace minisgl
