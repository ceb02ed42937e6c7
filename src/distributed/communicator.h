#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace minisgl {

/// The ranks that share a model, as layers see them. Used only by the executor thread; carries tensors, never control messages.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// out [size * parts, ...]: the ranks' `part` [parts, ...] in rank order, the same on every rank. Contiguous, same dtype.
  virtual void all_gather(const Tensor& part, const Tensor& out) = 0;
};

/// The number of equal K-slices whose sums a row-parallel layer (o_proj, down_proj) of width k joins by a fixed tree: the largest of 8, 4,
/// 2, 1 that divides k. It follows from the model alone, so that one rank and several add in the same order: ranks own whole slices.
int row_parallel_slices(int64_t k);

/// A group of one: `self`.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace minisgl
