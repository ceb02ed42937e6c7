#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// Called while weights load: bytes read so far and in all.
using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

/// One tensor that a model expects in a checkpoint, and where it goes: rows of a packed matrix, or a float32 vector.
struct WeightSlot {
  std::string name;  ///< Hugging Face's, "model.layers.0.self_attn.q_proj.weight"
  Shape shape;       ///< [out_features, in_features] or [size]
  LinearWeight* matrix = nullptr;
  int64_t row_begin = 0;  ///< of `matrix`: merged projections stack several tensors
  Tensor vector;          ///< where `matrix` is null
  float dummy_value = 0;  ///< what dummy weights fill a vector with: 1 for a norm, 0 for a bias
};

/// All tensors of a model, built by walking its layers.
class WeightTable {
 public:
  /// A checkpoint's [rows, weight.k()] matrix goes to rows [row_begin, row_begin + rows) of `weight`.
  void add_matrix(std::string name, LinearWeight& weight, int64_t row_begin, int64_t rows);
  /// A whole matrix.
  void add_matrix(std::string name, LinearWeight& weight) { add_matrix(std::move(name), weight, 0, weight.n()); }
  /// A norm weight [size] float32.
  void add_norm(std::string name, const Tensor& vector);
  /// A bias; elements [begin, begin + count) of `vector`.
  void add_bias(std::string name, const Tensor& vector, int64_t begin, int64_t count);

  /// A tensor that a checkpoint may carry and the model does not need. A name that starts with '*' stands for every name with that ending.
  void ignore(std::string name) { ignored_.push_back(std::move(name)); }

  const std::vector<WeightSlot>& slots() const { return slots_; }
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Memory of all matrices (as packed) and vectors.
  size_t bytes() const;

 private:
  std::vector<WeightSlot> slots_;
  std::vector<std::string> ignored_;
};

/// Fills every slot from `checkpoint`, converting to the slot's dtype in pieces of at most 4 MiB (or one row) on the threads of
/// process_compute_pool(), so that a load needs little memory beside the weights. Strict: throws Error(kBadModel) before anything is read
/// if a tensor is missing, has another shape or is left over; the message names the first such tensor, found and expected shape, and how
/// many more there are.
void load_weights(const WeightTable& table, Checkpoint& checkpoint, Ops& ops, const LoadProgress& progress);

/// Fills matrices with N(0, 0.02) and vectors with their dummy value. An element depends only on its tensor's name and its index there:
/// not on threads, pieces, order or dtype (beyond rounding). Progress counts the bytes written.
void fill_dummy_weights(const WeightTable& table, Ops& ops, const LoadProgress& progress);

}  // namespace minisgl
