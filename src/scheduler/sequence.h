#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kvcache/prefix_cache.h"
#include "scheduler/request.h"
#include "scheduler/text_stream.h"

namespace minisgl {

inline int64_t elapsed_us(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::microseconds>(end - begin).count();
}

/// A request with what it holds and how far it has come. The scheduler's own.
///
/// Counts of tokens come in two kinds. *Launched* ones (computed_tokens, known_tokens, next_target) advance when a plan is built, and say
/// what the next plan may contain. *Committed* ones (tokens, committed_tokens, the result) advance when a step's results are handled, and
/// they alone decide what has happened: what is emitted, when the request ends, what others may read (contract 7).
struct Sequence {
  using Clock = std::chrono::steady_clock;

  enum class State : uint8_t {
    kWaiting,   ///< in the queue; holds nothing
    kRunning,   ///< holds a row and pages
    kStopping,  ///< preempted: joins no further plan, returns to the queue when its last launched step has committed
    kFinished,  ///< answered; exists until no launched step refers to it
  };

  Sequence(std::shared_ptr<Request> r, uint64_t number)
      : request(std::move(r)),
        text(*request),
        arrival_number(number),
        prompt_tokens(static_cast<int64_t>(request->prompt_token_ids.size())),
        tokens(request->prompt_token_ids),
        known_tokens(prompt_tokens) {}

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t output_tokens() const { return length() - prompt_tokens; }
  /// Most tokens that the sequence can come to.
  int64_t max_length() const { return prompt_tokens + request->max_tokens; }
  bool in_prefill() const { return computed_tokens < prefill_tokens; }
  /// Launched steps will sample all tokens that it may have: nothing is left to launch, whatever the results are.
  bool launched_all() const { return known_tokens == max_length(); }
  bool finished() const { return state == State::kFinished; }

  /// The order in which requests are served, and (backwards) preempted. Total, and fixed for the life of a request.
  bool before(const Sequence& other) const {
    return request->priority != other.request->priority ? request->priority > other.request->priority
                                                        : arrival_number < other.arrival_number;
  }

  std::shared_ptr<Request> request;
  TextStream text;
  State state = State::kWaiting;
  uint64_t arrival_number;
  int64_t prompt_tokens;
  std::vector<int32_t> tokens;  ///< prompt and committed output

  // What it holds while it runs.
  int32_t row = -1;
  std::vector<int32_t> pages;  ///< of positions [i * page_size, (i + 1) * page_size); the first prefix.num_pages are the tree's
  PrefixHandle prefix;         ///< locked
  /// Own pages whose tokens turned out to be in the tree: `pages` names the tree's already, the device's page table not yet. The row's next
  /// plan repoints it, and retires these (contract 3).
  std::vector<PrefixCache::Duplicate> duplicates;
  size_t sent_pages = 0;  ///< leading entries of `pages` that the device's page table has, or will once `duplicates` are sent

  // Launched.
  int64_t computed_tokens = 0;  ///< positions whose keys and values are computed once all launched steps are done
  int64_t known_tokens;         ///< positions whose token is known to the device then
  int64_t prefill_tokens = 0;   ///< known when it was admitted: below this it computes whole chunks
  int64_t next_target = 1;      ///< first prompt position whose log-probability no step was launched for
  uint64_t last_step = 0;       ///< last launched step that refers to its row and pages (rule 2)
  int in_flight = 0;            ///< launched, uncommitted steps that have a row of this

  // Committed.
  int64_t committed_tokens = 0;  ///< positions computed by committed steps since it was admitted

  uint64_t held_by = 0;      ///< arrival number (from 1) of the running request that it waits for, while it is held
  int64_t held_pages = 0;    ///< its matched pages when it was held
  uint64_t was_held_by = 0;  ///< of the last one that held it: none holds it twice
  int64_t overtaken = 0;     ///< how many later arrivals were admitted before it
  Clock::time_point arrival, admitted, first_token;
};

}  // namespace minisgl
