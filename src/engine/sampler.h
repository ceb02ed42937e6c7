#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "engine/executor.h"
#include "engine/step_plan.h"
#include "ops/ops.h"

namespace minisgl {

/// One token to draw.
struct SampleJob {
  int64_t logit_row = 0;  ///< row of the logits given to Sampler::sample()
  const RowSampling* sampling = nullptr;
  const int32_t* tokens = nullptr;  ///< the row's sequence so far, [position]
  int32_t position = 0;             ///< the place in the sequence that the drawn token takes
  const uint32_t* mask = nullptr;   ///< bit i allows token i, [ceil(vocab / 32)]; null: all
};

/// Draws tokens from logits on the CPU: each row by itself, so that a batch cannot change a draw.
///
/// Order of work: mask, logit bias, min_tokens, repetition penalty (prompt and output), frequency and presence penalty (output only),
/// temperature, top-k, top-p, min-p, draw; a tie at a cut keeps the lower id. Penalties read the token pool, never the host's history.
/// Greedy rows take the argmax, lowest id on ties. Others take the largest (logit - max) / temperature + gumbel(seed, choice, position, id)
/// among what the cuts left: a sample of the softmax (Gumbel-max), whose noise does not depend on the cuts.
class Sampler {
 public:
  /// `ops` and `pool` outlive the sampler. `max_rows`: most logit rows of one call.
  Sampler(Ops& ops, ComputePool& pool, int64_t vocab_size, int64_t max_rows);

  /// Draws jobs[i] into ids[i], or -1 with a status other than kOk. Overwrites the rows of `logits` [rows, vocab] float32 that have jobs.
  /// A row takes part in at most one job.
  void sample(const Tensor& logits, std::span<const SampleJob> jobs, std::span<int32_t> ids, std::span<RowStatus> status);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  /// More likely, or as likely with a lower id.
  struct Before {
    bool operator()(const Candidate& a, const Candidate& b) const { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }
  };
  /// One member's scratch memory.
  struct Scratch {
    std::vector<uint32_t> seen;  // [vocab]; all zero between rows
    std::vector<Candidate> candidates;
  };

  void adjust(std::span<float> logits, const SampleJob& job, Scratch& scratch) const;
  static int32_t draw(std::span<const float> logits, int32_t best_id, const SampleJob& job, Scratch& scratch);
  static int32_t draw_from_all(std::span<const float> logits, int32_t best_id, const SampleJob& job);
  static void select_largest(std::span<const float> logits, size_t count, std::vector<Candidate>& out);
  static bool keep_mass(std::vector<Candidate>& candidates, double limit, float max, float temperature);
  static void cut(std::span<const float> logits, float max, const RowSampling& sampling, std::vector<Candidate>& candidates);

  Ops& ops_;
  ComputePool& pool_;
  int64_t vocab_size_;
  std::vector<Scratch> scratch_;  // by member of the pool
  OwnedTensor argmax_;            // [max_rows] int32, by logit row
};

}  // namespace minisgl
