#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/float_math.h"
#include "base/rng.h"

namespace minisgl {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The bit of Scratch::seen that marks a token of the prompt; the bits below count its occurrences in the output.
constexpr uint32_t kInPrompt = 0x80000000u;

/// Forbids a token. NaN stays, so that a broken row is still found.
void ban(float& logit) {
  logit = std::isnan(logit) ? logit : -kInfinity;
}

bool needs_adjustment(const SampleJob& job) {
  const RowSampling& s = *job.sampling;
  return job.mask != nullptr || !s.logit_bias.empty() || (!s.banned_before_min.empty() && job.position - s.prompt_tokens < s.min_tokens) ||
         s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0;
}

/// exp((logit - max) / temperature): the probability of a token relative to the most likely one.
float weight(float logit, float max, float temperature) {
  return exp_non_positive((logit - max) / temperature);
}

/// Sum of exp((logit - max) / temperature), in an order fixed by the number of logits.
double exp_sum(std::span<const float> logits, float max, float temperature) {
  constexpr size_t kLanes = 16;
  constexpr size_t kBlock = 4096;
  double total = 0;
  size_t i = 0;
  while (i + kLanes <= logits.size()) {
    float lanes[kLanes] = {};
    const size_t end = std::min(i + kBlock, logits.size());
    for (; i + kLanes <= end; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weight(logits[i + lane], max, temperature);
    }
    for (const float lane : lanes) total += lane;
  }
  for (; i < logits.size(); ++i) total += weight(logits[i], max, temperature);
  return total;
}

}  // namespace

Sampler::Sampler(Ops& ops, ComputePool& pool, int64_t vocab_size, int64_t max_rows)
    : ops_(ops),
      pool_(pool),
      vocab_size_(vocab_size),
      scratch_(static_cast<size_t>(pool.threads())),
      argmax_(DType::kInt32, {max_rows}, ops.device()) {
  for (Scratch& scratch : scratch_) scratch.seen.resize(static_cast<size_t>(vocab_size));
}

void Sampler::sample(const Tensor& logits, std::span<const SampleJob> jobs, std::span<int32_t> ids, std::span<RowStatus> status) {
  const int64_t rows = logits.size(0);
  MINISGL_CHECK(logits.size(1) == vocab_size_ && rows <= argmax_.view().size(0), "logits {}", logits.shape().to_string());
  if (jobs.empty()) return;
  const auto row = [&](const SampleJob& job) {
    return std::span<float>(logits.data<float>() + job.logit_row * logits.stride(0), static_cast<size_t>(vocab_size_));
  };

  if (std::any_of(jobs.begin(), jobs.end(), needs_adjustment)) {
    pool_.parallel_for(static_cast<int64_t>(jobs.size()), 1, [&](int64_t begin, int64_t end, int member) {
      for (int64_t i = begin; i < end; ++i) {
        const SampleJob& job = jobs[static_cast<size_t>(i)];
        if (needs_adjustment(job)) adjust(row(job), job, scratch_[static_cast<size_t>(member)]);
      }
    });
  }

  // The argmax is the answer of greedy rows; the others need the maximum, and it finds NaN.
  const Tensor argmax = argmax_.view().rows(0, rows);
  if (static_cast<int64_t>(jobs.size()) == rows) {
    ops_.argmax(logits, argmax);
  } else {
    for (const SampleJob& job : jobs) ops_.argmax(logits.rows(job.logit_row, 1), argmax.rows(job.logit_row, 1));
  }
  bool any_random = false;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const int32_t best_id = argmax.data<int32_t>()[jobs[i].logit_row];
    if (best_id < 0) {
      status[i] = RowStatus::kNanLogits;
    } else {
      status[i] = row(jobs[i])[static_cast<size_t>(best_id)] == -kInfinity ? RowStatus::kEmptyMask : RowStatus::kOk;
    }
    ids[i] = status[i] == RowStatus::kOk ? best_id : -1;
    any_random |= ids[i] >= 0 && jobs[i].sampling->temperature > 0;
  }
  if (!any_random) return;
  pool_.parallel_for(static_cast<int64_t>(jobs.size()), 1, [&](int64_t begin, int64_t end, int member) {
    for (int64_t i = begin; i < end; ++i) {
      const SampleJob& job = jobs[static_cast<size_t>(i)];
      int32_t& id = ids[static_cast<size_t>(i)];
      if (id >= 0 && job.sampling->temperature > 0) id = draw(row(job), id, job, scratch_[static_cast<size_t>(member)]);
    }
  });
}

void Sampler::adjust(std::span<float> logits, const SampleJob& job, Scratch& scratch) const {
  const RowSampling& s = *job.sampling;
  if (job.mask != nullptr) {
    for (size_t id = 0; id < logits.size(); ++id) {
      if ((job.mask[id / 32] >> (id % 32) & 1u) == 0) ban(logits[id]);
    }
  }
  for (const auto& [id, bias] : s.logit_bias) logits[static_cast<size_t>(id)] += bias;
  if (job.position - s.prompt_tokens < s.min_tokens) {
    for (const int32_t id : s.banned_before_min) ban(logits[static_cast<size_t>(id)]);
  }
  if (s.repetition_penalty == 1 && s.frequency_penalty == 0 && s.presence_penalty == 0) return;

  std::vector<uint32_t>& seen = scratch.seen;
  for (int32_t p = 0; p < job.position; ++p) {
    uint32_t& count = seen[static_cast<size_t>(job.tokens[p])];
    count = p < s.prompt_tokens ? kInPrompt : count + 1;
  }
  for (int32_t p = 0; p < job.position; ++p) {
    const auto id = static_cast<size_t>(job.tokens[p]);
    if (seen[id] == 0) continue;  // done at its first place
    float& logit = logits[id];
    logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
    if (const uint32_t count = seen[id] & ~kInPrompt; count > 0) {
      logit -= static_cast<float>(count) * s.frequency_penalty + s.presence_penalty;
    }
    seen[id] = 0;
  }
}

int32_t Sampler::draw(std::span<const float> logits, int32_t best_id, const SampleJob& job, Scratch& scratch) {
  const RowSampling& s = *job.sampling;
  const float max = logits[static_cast<size_t>(best_id)];
  if (max == kInfinity) return best_id;  // all of the mass; differences to it would be NaN
  const bool has_top_k = s.top_k > 0 && static_cast<size_t>(s.top_k) < logits.size();
  if (!has_top_k && s.top_p >= 1) return draw_from_all(logits, best_id, job);

  cut(logits, max, s, scratch.candidates);
  float best_score = -kInfinity;
  for (const Candidate& candidate : scratch.candidates) {
    const float scaled = (candidate.logit - max) / s.temperature;
    if (s.min_p > 0 && exp_non_positive(scaled) < s.min_p) continue;
    const float score =
        scaled + gumbel(s.seed, static_cast<uint32_t>(s.choice), static_cast<uint32_t>(job.position), static_cast<uint32_t>(candidate.id));
    if (score > best_score || (score == best_score && candidate.id < best_id)) {
      best_score = score;
      best_id = candidate.id;
    }
  }
  return best_id;
}

/// Gumbel-max over the whole vocabulary (and min-p). The noise is at most -log(v), where v is the uniform number it is made from: a token
/// whose v is too large to beat the best score so far, even with the largest logit, costs only its random bits.
int32_t Sampler::draw_from_all(std::span<const float> logits, int32_t best_id, const SampleJob& job) {
  const RowSampling& s = *job.sampling;
  const auto choice = static_cast<uint32_t>(s.choice);
  const auto position = static_cast<uint32_t>(job.position);
  const float max = logits[static_cast<size_t>(best_id)];
  constexpr float kMargin = 0.01f;  // far above the rounding errors of a score, so that nothing is passed over wrongly

  float best_score = gumbel(s.seed, choice, position, static_cast<uint32_t>(best_id));
  uint32_t bits_limit = 0;
  const auto update_limit = [&] {
    const double limit = best_score <= kMargin ? 4294967295.0 : 4294967296.0 * exp_non_positive(kMargin - best_score);
    bits_limit = static_cast<uint32_t>(std::min(limit, 4294967295.0));
  };
  update_limit();

  const auto vocab = static_cast<uint32_t>(logits.size());
  for (uint32_t block = 0; block * 4 < vocab; ++block) {
    const auto bits = draw_bits(s.seed, choice, position, block);
    for (uint32_t lane = 0; lane < 4; ++lane) {
      const uint32_t id = block * 4 + lane;
      if (bits[lane] > bits_limit || id >= vocab) continue;
      const float scaled = (logits[id] - max) / s.temperature;
      if (scaled + kMaxGumbel < best_score || (s.min_p > 0 && exp_non_positive(scaled) < s.min_p)) continue;
      const float score = scaled + gumbel_from_bits(bits[lane]);
      if (score > best_score || (score == best_score && static_cast<int32_t>(id) < best_id)) {
        best_score = score;
        best_id = static_cast<int32_t>(id);
        update_limit();
      }
    }
  }
  return best_id;
}

/// The `count` largest logits, lower ids first among equals, in any order. Keeps at most twice as many at a time: whenever the buffer is
/// full, the best `count` stay and the smallest of them becomes the bar for the rest. An equal that comes later has a higher id and is
/// rightly turned away.
void Sampler::select_largest(std::span<const float> logits, size_t count, std::vector<Candidate>& out) {
  out.clear();
  if (count == logits.size()) {
    for (size_t id = 0; id < count; ++id) {
      if (logits[id] > -kInfinity) out.push_back({logits[id], static_cast<int32_t>(id)});
    }
    return;
  }
  const size_t capacity = std::max<size_t>(2 * count, count + 256);
  float bar = -kInfinity;
  const auto compact = [&] {
    std::nth_element(out.begin(), out.begin() + static_cast<ptrdiff_t>(count) - 1, out.end(), Before());
    out.resize(count);
    bar = out.back().logit;
  };
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] > bar)) continue;
    out.push_back({logits[id], static_cast<int32_t>(id)});
    if (out.size() == capacity) compact();
  }
  if (out.size() > count) compact();
}

/// What top-k and top-p leave, in any order. Tokens of minus infinity never take part.
void Sampler::cut(std::span<const float> logits, float max, const RowSampling& s, std::vector<Candidate>& candidates) {
  if (s.top_k > 0 && static_cast<size_t>(s.top_k) < logits.size()) {
    select_largest(logits, static_cast<size_t>(s.top_k), candidates);
    if (s.top_p >= 1) return;
    double total = 0;
    for (const Candidate& candidate : candidates) total += weight(candidate.logit, max, s.temperature);
    keep_mass(candidates, total * static_cast<double>(s.top_p), max, s.temperature);
    return;
  }
  const double limit = exp_sum(logits, max, s.temperature) * static_cast<double>(s.top_p);
  // Most often a few tokens hold the mass; if they do not, every token is a candidate.
  for (const size_t count : {size_t{64}, size_t{1024}, logits.size()}) {
    select_largest(logits, std::min(count, logits.size()), candidates);
    if (keep_mass(candidates, limit, max, s.temperature)) return;
  }
}

/// Keeps the most likely candidates whose preceding mass is below `limit`, at least one. False if all of them together do not reach it.
/// Halves the range in which the border lies, as quickselect does, so that the cost is linear: nothing is sorted but the last few.
bool Sampler::keep_mass(std::vector<Candidate>& candidates, double limit, float max, float temperature) {
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<ptrdiff_t>(i); };
  size_t begin = 0;  // all before it are kept
  size_t end = candidates.size();
  double mass = 0;  // of all before `begin`
  while (end - begin > 32) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), Before());
    double half = 0;
    for (size_t i = begin; i < middle; ++i) half += weight(candidates[i].logit, max, temperature);
    if (mass + half >= limit) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), Before());
  const size_t all = candidates.size();
  for (size_t i = begin; i < end; ++i) {
    if (i > 0 && mass >= limit) {
      candidates.resize(i);
      return true;
    }
    mass += weight(candidates[i].logit, max, temperature);
  }
  candidates.resize(end);
  return end < all || mass >= limit;
}

}  // namespace minisgl
