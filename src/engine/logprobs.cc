#include "engine/logprobs.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace minisgl {

LogprobRows::LogprobRows(Ops& ops, int64_t vocab_size, int64_t max_rows, int64_t max_top)
    : ops_(ops),
      logprobs_(DType::kFloat32, {max_rows, vocab_size}, ops.device()),
      top_ids_(DType::kInt32, {std::min(max_top, vocab_size)}, ops.device()),
      top_(DType::kFloat32, {std::min(max_top, vocab_size)}, ops.device()) {}

int64_t LogprobRows::compute(const Tensor& logits) {
  MINISGL_CHECK(rows_ < logprobs_.view().size(0));
  ops_.log_softmax(logits, logprobs_.view().rows(rows_, 1));
  return rows_++;
}

RowLogprobs LogprobRows::read(int64_t row, int32_t token_id, int32_t top, StepResult& result) {
  MINISGL_CHECK(row < rows_);
  const Tensor values = logprobs_.view().rows(row, 1);
  RowLogprobs out;
  out.token_logprob = token_id < 0 ? std::numeric_limits<float>::quiet_NaN() : values.data<float>()[token_id];
  out.top_begin = static_cast<int32_t>(result.top_ids.size());
  out.top_count = static_cast<int32_t>(std::min<int64_t>(std::max(top, 0), top_.view().size(0)));
  if (out.top_count > 0 && token_id >= 0) {
    const Tensor ids = top_ids_.view().rows(0, out.top_count);
    const Tensor best = top_.view().rows(0, out.top_count);
    ops_.top_k(values, ids.reshaped({1, out.top_count}), best.reshaped({1, out.top_count}));
    result.top_ids.insert(result.top_ids.end(), ids.data<int32_t>(), ids.data<int32_t>() + out.top_count);
    result.top_logprobs.insert(result.top_logprobs.end(), best.data<float>(), best.data<float>() + out.top_count);
  } else {
    out.top_count = 0;
  }
  return out;
}

}  // namespace minisgl
