#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "distributed/communicator.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// The sizes of a mixture of experts, of the whole layer.
struct MoeShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  ///< of one expert
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  bool normalize_weights = false;  ///< the chosen weights are scaled to sum 1
};

/// The activations of one block of tokens, shared by all sparse layers of a model. A block is as many tokens as keep the experts' outputs
/// within 64 MiB, at least one: the memory does not grow with the step.
class MoeWorkspace {
 public:
  /// Of a layer that `ranks` ranks share.
  MoeWorkspace(const MoeShape& shape, int ranks, int64_t max_tokens, Device device);
  size_t bytes() const;
  /// What bytes() will be on one rank, before anything is allocated.
  static size_t bytes(const MoeShape& shape, int64_t max_tokens);

 private:
  friend class MoeLayer;

  int64_t block_tokens_;
  int64_t slices_;                     ///< K-slices of an expert's down projection, of all ranks
  int64_t local_slices_;               ///< those that this rank owns
  OwnedTensor router_logits_;          ///< [block, experts]
  OwnedTensor expert_ids_;             ///< [block, top_k] int32
  OwnedTensor weights_;                ///< [block, top_k]
  OwnedTensor pair_tokens_;            ///< [block * top_k] int32: the token of each pair, pairs sorted by expert
  OwnedTensor gathered_;               ///< [block, hidden]: the tokens of one expert
  OwnedTensor gate_up_;                ///< [block, 2 * intermediate / ranks]
  OwnedTensor activated_;              ///< [block, intermediate / ranks]
  OwnedTensor down_;                   ///< slices of one expert's output, [local slices, its tokens, hidden]
  OwnedTensor local_out_;              ///< [local slices, block * top_k, hidden]; only with more than one rank
  OwnedTensor expert_out_;             ///< [slices, block * top_k, hidden], in the order of (token, slot)
  std::vector<int32_t> pairs_;         ///< pairs (token * top_k + slot) sorted by expert, by pair within an expert
  std::vector<int32_t> expert_begin_;  ///< [experts + 1] into pairs_
};

/// A mixture of experts on the CPU: the plain loop over experts, each over the tokens that chose it. A token's result does not depend on
/// which other tokens are there: linear operators are independent of the number of rows, and a token's experts are summed in slot order
/// (within each K-slice of down; the slices are then joined by the tree of Ops::sum_slices).
///
/// Ranks divide every expert: a rank owns rows of gate and up and whole K-slices of down, as RowParallelLinear does. One all_gather per
/// block brings the slices together before they are combined: the result has the same bits on one rank and on several.
class MoeLayer {
 public:
  MoeLayer(Ops& ops, Communicator& communicator, const MoeShape& shape, DType dtype);

  /// x [tokens, hidden] and out [tokens, hidden]; they may be the same.
  void forward(const Tensor& x, const Tensor& out, MoeWorkspace& workspace) const;

  /// [experts, hidden].
  LinearWeight& router() { return *router_; }
  /// [2 * intermediate / ranks, hidden], gate above up.
  LinearWeight& gate_up(int64_t expert) { return *gate_up_[static_cast<size_t>(expert)]; }
  /// [hidden, intermediate / ranks].
  LinearWeight& down(int64_t expert) { return *down_[static_cast<size_t>(expert)]; }

 private:
  void forward_block(const Tensor& x, const Tensor& out, MoeWorkspace& workspace) const;
  void sort_by_expert(const Tensor& expert_ids, MoeWorkspace& workspace) const;

  Ops& ops_;
  Communicator& communicator_;
  MoeShape shape_;
  std::unique_ptr<LinearWeight> router_;
  std::vector<std::unique_ptr<LinearWeight>> gate_up_;
  std::vector<std::unique_ptr<LinearWeight>> down_;
};

}  // namespace minisgl
