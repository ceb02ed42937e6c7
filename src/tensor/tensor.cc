#include "tensor/tensor.h"

#include <algorithm>

#include "base/error.h"

namespace minisgl {

Shape::Shape(std::initializer_list<int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  MINISGL_CHECK(dims.size() <= kMaxRank, "rank {}", dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank_; ++i) count *= (*this)[i];
  return count;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i == 0 ? "" : ", ") + std::to_string((*this)[i]);
  return text + "]";
}

Tensor::Tensor(void* data, DType dtype, const Shape& shape, Device device) : data_(data), dtype_(dtype), device_(device), shape_(shape) {
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides_[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
}

Tensor::Tensor(void* data, DType dtype, const Shape& shape, const std::array<int64_t, Shape::kMaxRank>& strides, Device device)
    : data_(data), dtype_(dtype), device_(device), shape_(shape), strides_(strides) {
  MINISGL_CHECK(shape.rank() == 0 || strides[static_cast<size_t>(shape.rank() - 1)] == 1, "the innermost dimension must be contiguous");
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int i = shape_.rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && stride(i) != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

Tensor Tensor::rows(int64_t begin, int64_t count) const {
  MINISGL_CHECK(shape_.rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= shape_[0], "rows [{}, {}) of {}", begin, begin + count,
                shape_.to_string());
  Tensor result = *this;
  result.data_ = static_cast<char*>(data_) + begin * stride(0) * static_cast<int64_t>(dtype_size(dtype_));
  switch (shape_.rank()) {
    case 1:
      result.shape_ = {count};
      break;
    case 2:
      result.shape_ = {count, shape_[1]};
      break;
    case 3:
      result.shape_ = {count, shape_[1], shape_[2]};
      break;
    default:
      result.shape_ = {count, shape_[1], shape_[2], shape_[3]};
      break;
  }
  return result;
}

Tensor Tensor::columns(int64_t begin, int64_t count) const {
  MINISGL_CHECK(shape_.rank() == 2 && begin >= 0 && count >= 0 && begin + count <= shape_[1], "columns [{}, {}) of {}", begin,
                begin + count, shape_.to_string());
  Tensor result = *this;
  result.data_ = static_cast<char*>(data_) + begin * static_cast<int64_t>(dtype_size(dtype_));
  result.shape_ = {shape_[0], count};
  return result;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  MINISGL_CHECK(is_contiguous() && shape.elements() == shape_.elements(), "{} as {}", shape_.to_string(), shape.to_string());
  return Tensor(data_, dtype_, shape, device_);
}

Tensor Tensor::split_heads(int64_t heads, int64_t dim) const {
  MINISGL_CHECK(shape_.rank() == 2 && heads * dim == shape_[1], "{} as {} heads of {}", shape_.to_string(), heads, dim);
  return Tensor(data_, dtype_, {shape_[0], heads, dim}, {stride(0), dim, 1, 0}, device_);
}

OwnedTensor::OwnedTensor(DType dtype, const Shape& shape, Device device)
    : buffer_(device, static_cast<size_t>(shape.elements()) * dtype_size(dtype)), view_(buffer_.data(), dtype, shape, device) {}

}  // namespace minisgl
