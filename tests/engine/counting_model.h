#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cpu_executor.h"

namespace minisgl::test {

/// A model that counts: after token t comes (t + 1) % vocab with logit 10, everything else 0. Checks on the way that each row's keys and
/// values would be read from where they were written: it keeps, per slot, the position and token that wrote it.
class CountingModel final : public ForwardModel {
 public:
  CountingModel(int64_t vocab_size, int64_t slots, int page_size)
      : vocab_(vocab_size), page_size_(page_size), shadow_(static_cast<size_t>(slots), {-1, -1}) {}

  void forward(const ForwardBatch& batch) override {
    while (hold.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (fail.load()) minisgl::fail(ErrorKind::kInternal, "the counting model was told to fail");
    if (throw_number.load()) throw 7;
    ++forwards;
    const int64_t tokens = batch.input_ids.size(0);
    inputs_.assign(batch.input_ids.data<int32_t>(), batch.input_ids.data<int32_t>() + tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      shadow_[static_cast<size_t>(batch.slots.data<int32_t>()[t])] = {batch.positions.data<int32_t>()[t], inputs_[static_cast<size_t>(t)]};
    }
    const AttentionBatch& a = batch.attention;
    for (int64_t r = 0; r < a.rows; ++r) {
      const int32_t* pages = a.page_table + a.row_index[r] * a.page_table_stride;
      const int32_t last = a.kv_length[r] - 1;
      MINISGL_CHECK(a.query_start[r + 1] - a.query_start[r] <= a.kv_length[r]);
      for (int32_t p = 0; p <= last; ++p) {
        const auto [position, token] = shadow_[static_cast<size_t>(pages[p / page_size_] * page_size_ + p % page_size_)];
        MINISGL_CHECK(position == p, "row {} reads position {} and finds {}", a.row_index[r], p, position);
        MINISGL_CHECK(token >= 0 && token < vocab_);
      }
    }
  }

  void head(const Tensor& rows, const Tensor& logits) override {
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const int32_t token = inputs_[static_cast<size_t>(rows.data<int32_t>()[i])];
      float* out = logits.data<float>() + i * logits.stride(0);
      std::fill_n(out, vocab_, 0.0f);
      out[(token + 1) % vocab_] = 10.0f;
      if (token == nan_after) out[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  std::atomic<bool> hold{false};  ///< forward() waits while it is set
  std::atomic<bool> fail{false};
  std::atomic<bool> throw_number{false};  ///< an exception that is not a std::exception
  std::atomic<int> forwards{0};
  int32_t nan_after = -1;  ///< the token after which the logits hold NaN

 private:
  int64_t vocab_;
  int32_t page_size_;
  std::vector<std::pair<int32_t, int32_t>> shadow_;
  std::vector<int32_t> inputs_;
};

/// An executor around a CountingModel, small enough for tests.
struct CountingEngine {
  explicit CountingEngine(
      PlanLimits limits =
          {.rows = 8, .max_tokens = 64, .max_model_len = 128, .num_pages = 64, .page_size = 4, .cache_groups = 1, .vocab_size = 100},
      int64_t logit_block_rows = 5)
      : limits(limits),
        ops(make_cpu_ops(process_compute_pool(2))),
        kv({.layers = {0}, .page_size = static_cast<int>(limits.page_size), .kv_heads = 1, .head_dim = 2, .dtype = DType::kFloat32},
           limits.num_pages, {}),
        model(limits.vocab_size, (limits.num_pages + 1) * limits.page_size, static_cast<int>(limits.page_size)),
        executor({.limits = limits, .logit_block_rows = logit_block_rows, .max_top_logprobs = 20, .max_in_flight = 2}, model, pools(), *ops,
                 process_compute_pool(2)) {}

  std::array<KvPool*, 1> pools() { return {&kv}; }

  PlanLimits limits;
  std::unique_ptr<Ops> ops;
  KvPool kv;
  CountingModel model;
  CpuExecutor executor;
};

}  // namespace minisgl::test
