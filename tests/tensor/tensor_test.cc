#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/error.h"

namespace minisgl {
namespace {

TEST(TensorTest, ViewsShareMemoryAndKeepStrides) {
  std::vector<float> data(6 * 8);
  std::iota(data.begin(), data.end(), 0.0f);
  const Tensor whole(data.data(), DType::kFloat32, {6, 8});
  const Tensor part = whole.rows(2, 3).columns(4, 4);
  EXPECT_EQ(part.shape(), (Shape{3, 4}));
  EXPECT_EQ(part.stride(0), 8);
  EXPECT_EQ(part.data<float>()[0], 20.0f);
  EXPECT_FALSE(part.is_contiguous());
  const Tensor heads = part.split_heads(2, 2);
  EXPECT_EQ(heads.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(heads.data<float>()[heads.stride(0) + heads.stride(1)], 30.0f);
  EXPECT_EQ(whole.reshaped({8, 6}).stride(0), 6);
}

TEST(TensorTest, ViewsOutsideTheTensorAreRefused) {
  std::vector<float> data(12);
  const Tensor tensor(data.data(), DType::kFloat32, {3, 4});
  EXPECT_THROW(tensor.rows(2, 2), Error);
  EXPECT_THROW(tensor.rows(-1, 1), Error);
  EXPECT_THROW(tensor.columns(3, 2), Error);
  EXPECT_THROW(tensor.reshaped({5}), Error);
  EXPECT_THROW(tensor.columns(0, 2).reshaped({6}), Error) << "not contiguous";
  EXPECT_THROW(tensor.split_heads(3, 2), Error);
}

TEST(TensorTest, ATensorWithoutElementsIsEmpty) {
  EXPECT_TRUE(Tensor().empty());
  EXPECT_TRUE(OwnedTensor(DType::kFloat32, {0, 4}).view().empty());
  EXPECT_FALSE(OwnedTensor(DType::kBFloat16, {1}).view().empty());
}

}  // namespace
}  // namespace minisgl
