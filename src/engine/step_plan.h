#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace minisgl {

/// How the tokens of one row are sampled: resolved (no optional fields left), fixed for the life of the row. The scheduler sends it once,
/// with the plan that first samples the row; the executor keeps it beside the token pool.
struct RowSampling {
  float temperature = 0;  ///< 0: greedy
  int32_t top_k = 0;      ///< 0: all
  float top_p = 1;
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  uint64_t seed = 0;
  int32_t choice = 0;
  int32_t prompt_tokens = 0;  ///< positions below this are prompt: the frequency and presence penalties skip them
  int32_t min_tokens = 0;     ///< below this many output tokens the ids in `banned_before_min` cannot be drawn
  std::vector<int32_t> banned_before_min = {};
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  int32_t logprobs = -1;  ///< top log-probabilities reported with each sampled token; -1: none
};

/// What one engine step does: a plain value built by the scheduler without any device. It is authoritative: an executor decides nothing
/// that changes results. All arrays are flat; rows are ordered prefill first, then decode; there is no padding (a graph pads itself).
///
/// A *row* here is a line of page table and token pool. A *token* of the step is identified by its flat index: rows in order, positions
/// ascending.
struct StepPlan {
  uint64_t step = 0;

  // --- changes of device state, applied before the forward, in this order ------------------------------------------------------------

  /// Pages of rows: page_table[row][page_index] = page.
  struct PageDelta {
    int32_t row;
    int32_t page_index;
    int32_t page;
  };
  std::vector<PageDelta> page_deltas;
  /// Tokens written into the token pool: token_ids[begin, begin + count) at positions [position, position + count) of `row`. A row's whole
  /// known sequence is written when it is admitted; sampled tokens are written by the executor itself.
  struct TokenWrite {
    int32_t row;
    int32_t position;
    int32_t begin;
    int32_t count;
  };
  std::vector<TokenWrite> token_writes;
  std::vector<int32_t> token_ids;
  /// Sampling state of rows that are new or were re-admitted.
  struct SamplingDelta {
    int32_t row;
    RowSampling sampling;
  };
  std::vector<SamplingDelta> sampling_deltas;
  /// KV pages to zero or copy, before the forward reads them.
  struct CacheOp {
    int32_t group;
    int32_t source_page;  ///< -1: zero the destination
    int32_t destination_page;
  };
  std::vector<CacheOp> cache_ops;

  // --- the batch -----------------------------------------------------------------------------------------------------------------------

  struct Row {
    int32_t row;
    int32_t position;    ///< first position computed in this step; everything before it is in the KV cache
    int32_t num_tokens;  ///< positions computed: >= 1
  };
  std::vector<Row> rows;
  int32_t num_prefill_rows = 0;  ///< rows[0, num_prefill_rows) are prefill, the rest decode (one token each)
  /// KV slot (page * page_size + offset) that each token writes. [tokens]
  std::vector<int32_t> slots;

  // --- outputs -------------------------------------------------------------------------------------------------------------------------

  /// Flat token indices whose logits are computed, ascending. The head runs in blocks of at most 256 of them.
  std::vector<int32_t> logit_rows;
  /// Logit rows that are sampled, ascending by logit row, each at most once: the drawn id is written to the token pool at `position` of
  /// `row`, which is the position after the logit row's token.
  struct Sample {
    int32_t logit_row;  ///< index into logit_rows
    int32_t row;
    int32_t position;
  };
  std::vector<Sample> samples;
  /// Logit rows whose log-probability of a known token is wanted (prompt log-probabilities), with `top` most likely ones. Ascending by
  /// logit row, each at most once.
  struct Target {
    int32_t logit_row;
    int32_t token_id;
    int32_t top;
  };
  std::vector<Target> targets;

  /// 0: eager. Otherwise the padded number of decode rows of the graph to replay.
  int32_t graph_size = 0;
  /// Stop after the logits; sampling goes on when StepHandle::sample() brings the masks.
  bool late_sampling = false;

  int64_t num_tokens() const { return static_cast<int64_t>(slots.size()); }
  /// Empties the arrays and keeps their memory.
  void clear();
};

}  // namespace minisgl
