#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "attention/attention_backend.h"
#include "base/compute_pool.h"
#include "distributed/communicator.h"
#include "model/decoder.h"
#include "ops/ops.h"

namespace minisgl {

/// Runs a Decoder over sequences on pages handed out in shuffled order, without engine or scheduler.
class DecoderHarness {
 public:
  struct Options {
    DType dtype = DType::kFloat32;
    int threads = 1;
    int page_size = 16;
    int64_t max_length = 320;  ///< of one sequence
    int rows = 1;              ///< sequences at once
  };
  /// The next `count` tokens of row `row`.
  struct Piece {
    int row = 0;
    int64_t count = 0;
  };

  DecoderHarness(const ModelConfig& config, const Options& options)
      : options_(options),
        pool_(options.threads),
        ops_(make_cpu_ops(pool_)),
        communicator_(make_self_communicator()),
        attention_(make_cpu_attention_backend(*ops_)),
        decoder_(config, options.dtype, options.max_length * options.rows, options.max_length, *ops_, *communicator_) {
    pages_per_row_ = (options.max_length + options.page_size - 1) / options.page_size;
    const int64_t num_pages = pages_per_row_ * options.rows;
    page_table_.resize(static_cast<size_t>(num_pages));
    std::iota(page_table_.begin(), page_table_.end(), 0);
    std::shuffle(page_table_.begin(), page_table_.end(), std::mt19937(7));
    const int64_t layer_elements = num_pages * 2 * config.num_kv_heads * options.page_size * config.head_dim;
    for (int64_t i = 0; i < config.num_layers; ++i) {
      kv_memory_.emplace_back(options.dtype, Shape{layer_elements});
      kv_.push_back({.data = kv_memory_.back().view().raw(),
                     .dtype = options.dtype,
                     .num_pages = num_pages,
                     .page_size = options.page_size,
                     .kv_heads = static_cast<int>(config.num_kv_heads),
                     .head_dim = static_cast<int>(config.head_dim)});
    }
    sequences_.resize(static_cast<size_t>(options.rows));
    cached_.resize(static_cast<size_t>(options.rows));
  }

  /// Called around Decoder::forward, if set.
  std::function<void()> before_forward;
  std::function<void()> after_forward;

  Decoder& decoder() { return decoder_; }
  Ops& ops() { return *ops_; }

  void set_sequence(int row, std::vector<int32_t> ids) {
    sequences_[static_cast<size_t>(row)] = std::move(ids);
    cached_[static_cast<size_t>(row)] = 0;
  }

  /// One forward over `pieces`. Returns the logits of all their tokens, [tokens * vocab].
  std::vector<float> step(const std::vector<Piece>& pieces) {
    std::vector<int32_t> ids, positions, slots, query_start{0}, kv_length, row_index;
    for (const Piece& piece : pieces) {
      const auto row = static_cast<size_t>(piece.row);
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t position = cached_[row] + i;
        ids.push_back(sequences_[row].at(static_cast<size_t>(position)));
        positions.push_back(static_cast<int32_t>(position));
        const int32_t page = page_table_[static_cast<size_t>(piece.row * pages_per_row_ + position / options_.page_size)];
        slots.push_back(page * options_.page_size + static_cast<int32_t>(position % options_.page_size));
      }
      cached_[row] += piece.count;
      query_start.push_back(static_cast<int32_t>(ids.size()));
      kv_length.push_back(static_cast<int32_t>(cached_[row]));
      row_index.push_back(piece.row);
    }
    const ForwardBatch batch{.input_ids = view(ids),
                             .positions = view(positions),
                             .slots = view(slots),
                             .attention = {.rows = static_cast<int64_t>(pieces.size()),
                                           .query_start = query_start.data(),
                                           .kv_length = kv_length.data(),
                                           .page_table = page_table_.data(),
                                           .row_index = row_index.data(),
                                           .page_table_stride = pages_per_row_}};
    if (before_forward) before_forward();
    decoder_.forward(batch, *attention_, kv_);
    if (after_forward) after_forward();

    const auto tokens = static_cast<int64_t>(ids.size());
    const int64_t vocab = decoder_.config().vocab_size;
    std::vector<float> logits(static_cast<size_t>(tokens * vocab));
    std::vector<int32_t> rows(static_cast<size_t>(tokens));
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor all_logits(logits.data(), DType::kFloat32, {tokens, vocab});
    for (int64_t begin = 0; begin < tokens; begin += 256) {
      const int64_t count = std::min<int64_t>(256, tokens - begin);
      decoder_.head(view(rows).rows(begin, count), all_logits.rows(begin, count));
    }
    return logits;
  }

  /// The logits of a whole sequence alone in row 0, fed `chunk` tokens at a time (0: all at once).
  std::vector<float> run(const std::vector<int32_t>& ids, int64_t chunk = 0) {
    set_sequence(0, ids);
    const auto length = static_cast<int64_t>(ids.size());
    std::vector<float> logits;
    for (int64_t begin = 0; begin < length;) {
      const int64_t count = chunk == 0 ? length : std::min(chunk, length - begin);
      const std::vector<float> part = step({{0, count}});
      logits.insert(logits.end(), part.begin(), part.end());
      begin += count;
    }
    return logits;
  }

 private:
  static Tensor view(std::vector<int32_t>& values) { return Tensor(values.data(), DType::kInt32, {static_cast<int64_t>(values.size())}); }

  Options options_;
  ComputePool pool_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<AttentionBackend> attention_;
  Decoder decoder_;
  int64_t pages_per_row_ = 0;
  std::vector<int32_t> page_table_;
  std::vector<OwnedTensor> kv_memory_;
  std::vector<KvLayer> kv_;
  std::vector<std::vector<int32_t>> sequences_;
  std::vector<int64_t> cached_;
};

}  // namespace minisgl
