#include "distributed/communicator.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace minisgl {
namespace {

TEST(SelfCommunicator, GathersItsOwnPart) {
  const auto self = make_self_communicator();
  EXPECT_EQ(self->rank(), 0);
  EXPECT_EQ(self->size(), 1);
  std::vector<float> part(12);
  std::iota(part.begin(), part.end(), 1.0f);
  std::vector<float> out(12);
  self->all_gather(Tensor(part.data(), DType::kFloat32, {3, 4}), Tensor(out.data(), DType::kFloat32, {3, 4}));
  EXPECT_EQ(out, part);
}

}  // namespace
}  // namespace minisgl
