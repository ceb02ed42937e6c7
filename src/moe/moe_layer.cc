#include "moe/moe_layer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace minisgl {

namespace {

constexpr int64_t kMaxExpertOutBytes = int64_t{64} << 20;

int64_t block_tokens(const MoeShape& shape, int64_t max_tokens) {
  const int64_t bytes_per_token =
      row_parallel_slices(shape.intermediate_size) * shape.experts_per_token * shape.hidden_size * static_cast<int64_t>(sizeof(float));
  return std::clamp(kMaxExpertOutBytes / bytes_per_token, int64_t{1}, std::max(max_tokens, int64_t{1}));
}

/// The leading part of a tensor's memory as a smaller contiguous tensor.
Tensor prefix(const OwnedTensor& tensor, const Shape& shape) {
  const Tensor& whole = tensor.view();
  MINISGL_CHECK(shape.elements() <= whole.shape().elements(), "{} of {}", shape.to_string(), whole.shape().to_string());
  return Tensor(whole.raw(), whole.dtype(), shape, whole.device());
}

}  // namespace

MoeWorkspace::MoeWorkspace(const MoeShape& shape, int ranks, int64_t max_tokens, Device device)
    : block_tokens_(block_tokens(shape, max_tokens)),
      slices_(row_parallel_slices(shape.intermediate_size)),
      local_slices_(slices_ / ranks),
      router_logits_(DType::kFloat32, {block_tokens_, shape.num_experts}, device),
      expert_ids_(DType::kInt32, {block_tokens_, shape.experts_per_token}, device),
      weights_(DType::kFloat32, {block_tokens_, shape.experts_per_token}, device),
      pair_tokens_(DType::kInt32, {block_tokens_ * shape.experts_per_token}, device),
      gathered_(DType::kFloat32, {block_tokens_, shape.hidden_size}, device),
      gate_up_(DType::kFloat32, {block_tokens_, 2 * shape.intermediate_size / ranks}, device),
      activated_(DType::kFloat32, {block_tokens_, shape.intermediate_size / ranks}, device),
      down_(DType::kFloat32, {local_slices_, block_tokens_, shape.hidden_size}, device),
      expert_out_(DType::kFloat32, {slices_, block_tokens_ * shape.experts_per_token, shape.hidden_size}, device),
      pairs_(static_cast<size_t>(block_tokens_ * shape.experts_per_token)),
      expert_begin_(static_cast<size_t>(shape.num_experts + 1)) {
  if (ranks > 1) {
    local_out_ = OwnedTensor(DType::kFloat32, {local_slices_, block_tokens_ * shape.experts_per_token, shape.hidden_size}, device);
  }
}

size_t MoeWorkspace::bytes() const {
  return router_logits_.bytes() + expert_ids_.bytes() + weights_.bytes() + pair_tokens_.bytes() + gathered_.bytes() + gate_up_.bytes() +
         activated_.bytes() + down_.bytes() + local_out_.bytes() + expert_out_.bytes() +
         (pairs_.size() + expert_begin_.size()) * sizeof(int32_t);
}

size_t MoeWorkspace::bytes(const MoeShape& shape, int64_t max_tokens) {
  const int64_t slices = row_parallel_slices(shape.intermediate_size);
  const int64_t router = shape.num_experts + 2 * shape.experts_per_token;
  const int64_t expert = (1 + slices) * shape.hidden_size + 3 * shape.intermediate_size;
  const int64_t pairs = shape.experts_per_token * (2 + slices * shape.hidden_size);
  return static_cast<size_t>(block_tokens(shape, max_tokens) * (router + expert + pairs) + shape.num_experts + 1) * sizeof(float);
}

MoeLayer::MoeLayer(Ops& ops, Communicator& communicator, const MoeShape& shape, DType dtype)
    : ops_(ops),
      communicator_(communicator),
      shape_(shape),
      router_(ops.create_linear_weight(shape.num_experts, shape.hidden_size, dtype)) {
  const int ranks = communicator.size();
  const int slices = row_parallel_slices(shape.intermediate_size);
  MINISGL_CHECK(slices % ranks == 0, "{} ranks share {} slices", ranks, slices);
  for (int64_t expert = 0; expert < shape.num_experts; ++expert) {
    gate_up_.push_back(ops.create_linear_weight(2 * shape.intermediate_size / ranks, shape.hidden_size, dtype));
    down_.push_back(ops.create_linear_weight(shape.hidden_size, shape.intermediate_size / ranks, dtype, slices / ranks));
  }
}

void MoeLayer::forward(const Tensor& x, const Tensor& out, MoeWorkspace& workspace) const {
  const int64_t tokens = x.size(0);
  for (int64_t begin = 0; begin < tokens; begin += workspace.block_tokens_) {
    const int64_t count = std::min(workspace.block_tokens_, tokens - begin);
    forward_block(x.rows(begin, count), out.rows(begin, count), workspace);
  }
}

void MoeLayer::forward_block(const Tensor& x, const Tensor& out, MoeWorkspace& workspace) const {
  const int64_t tokens = x.size(0);
  const int64_t top_k = shape_.experts_per_token;
  const int64_t hidden = shape_.hidden_size;
  const int64_t intermediate = shape_.intermediate_size / communicator_.size();
  const int64_t slices = workspace.local_slices_;

  const Tensor router_logits = prefix(workspace.router_logits_, {tokens, shape_.num_experts});
  const Tensor expert_ids = prefix(workspace.expert_ids_, {tokens, top_k});
  const Tensor weights = prefix(workspace.weights_, {tokens, top_k});
  ops_.linear(x, *router_, {}, router_logits);
  ops_.route_top_k(router_logits, shape_.normalize_weights, expert_ids, weights);
  sort_by_expert(expert_ids, workspace);

  const Tensor expert_out = prefix(workspace.expert_out_, {workspace.slices_, tokens * top_k, hidden});
  const bool shared = communicator_.size() > 1;
  const Tensor local_out = shared ? prefix(workspace.local_out_, {slices, tokens * top_k, hidden}) : expert_out;
  for (int64_t expert = 0; expert < shape_.num_experts; ++expert) {
    const int64_t begin = workspace.expert_begin_[static_cast<size_t>(expert)];
    const int64_t count = workspace.expert_begin_[static_cast<size_t>(expert) + 1] - begin;
    if (count == 0) continue;
    const Tensor gathered = prefix(workspace.gathered_, {count, hidden});
    const Tensor gate_up = prefix(workspace.gate_up_, {count, 2 * intermediate});
    const Tensor activated = prefix(workspace.activated_, {count, intermediate});
    const Tensor down = prefix(workspace.down_, {slices, count, hidden});
    ops_.gather_rows(x, workspace.pair_tokens_.view().rows(begin, count), gathered);
    ops_.linear(gathered, *gate_up_[static_cast<size_t>(expert)], {}, gate_up);
    ops_.silu_and_mul(gate_up, activated);
    ops_.linear_slices(activated, *down_[static_cast<size_t>(expert)], down);
    // Row i of each slice goes to its pair's place, where combine_experts finds a token's slots side by side.
    for (int64_t slice = 0; slice < slices; ++slice) {
      const float* from = down.data<float>() + slice * count * hidden;
      float* to = local_out.data<float>() + slice * tokens * top_k * hidden;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t pair = workspace.pairs_[static_cast<size_t>(begin + i)];
        std::memcpy(to + pair * hidden, from + i * hidden, static_cast<size_t>(hidden) * sizeof(float));
      }
    }
  }
  if (shared) communicator_.all_gather(local_out, expert_out);
  ops_.combine_experts(expert_out, weights, out);
}

void MoeLayer::sort_by_expert(const Tensor& expert_ids, MoeWorkspace& workspace) const {
  const auto num_pairs = static_cast<int32_t>(expert_ids.shape().elements());
  const auto* ids = expert_ids.data<int32_t>();
  std::vector<int32_t>& begin = workspace.expert_begin_;
  // A counting sort. After the second loop begin[e + 1] is where expert e starts; placing a pair moves it on, so that it ends where
  // expert e + 1 starts.
  std::fill(begin.begin(), begin.end(), 0);
  for (int32_t pair = 0; pair < num_pairs; ++pair) {
    const auto expert = static_cast<size_t>(ids[pair]);
    if (expert + 2 < begin.size()) ++begin[expert + 2];
  }
  for (size_t e = 2; e < begin.size(); ++e) begin[e] += begin[e - 1];
  auto* tokens = workspace.pair_tokens_.view().data<int32_t>();
  for (int32_t pair = 0; pair < num_pairs; ++pair) {
    const int32_t place = begin[static_cast<size_t>(ids[pair]) + 1]++;
    workspace.pairs_[static_cast<size_t>(place)] = pair;
    tokens[place] = pair / static_cast<int32_t>(shape_.experts_per_token);
  }
}

}  // namespace minisgl
