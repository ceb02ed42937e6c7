#pragma once

#include <barrier>
#include <cstring>
#include <vector>

#include "distributed/communicator.h"

namespace minisgl {

/// Ranks that are threads of this process: each copies its part to where all can read it.
class ThreadCommunicator final : public Communicator {
 public:
  struct Group {
    explicit Group(int size) : parts(static_cast<size_t>(size)), barrier(size) {}
    std::vector<Tensor> parts;
    std::barrier<> barrier;
  };
  ThreadCommunicator(Group& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.parts.size()); }
  void all_gather(const Tensor& part, const Tensor& out) override {
    group_.parts[static_cast<size_t>(rank_)] = part;
    group_.barrier.arrive_and_wait();
    auto* to = out.data<float>();
    for (const Tensor& from : group_.parts) {
      std::memcpy(to, from.raw(), static_cast<size_t>(from.shape().elements()) * sizeof(float));
      to += from.shape().elements();
    }
    group_.barrier.arrive_and_wait();
  }

 private:
  Group& group_;
  int rank_;
};

}  // namespace minisgl
