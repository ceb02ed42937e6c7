#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace minisgl {

/// Up to four dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t elements() const;
  /// "[2, 1024]".
  std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// A view of elements on a device; does not own them. The innermost dimension is contiguous; `strides` are in elements, outermost first.
/// Cheap to copy: pass it by value or const reference. A const Tensor& may still be written through, as with std::span.
class Tensor {
 public:
  Tensor() = default;
  /// A contiguous (row-major) view.
  Tensor(void* data, DType dtype, const Shape& shape, Device device = {});
  /// A view with explicit strides.
  Tensor(void* data, DType dtype, const Shape& shape, const std::array<int64_t, Shape::kMaxRank>& strides, Device device = {});

  const Shape& shape() const { return shape_; }
  int64_t size(int dim) const { return shape_[dim]; }
  int64_t stride(int dim) const { return strides_[static_cast<size_t>(dim)]; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool is_contiguous() const;
  bool empty() const { return data_ == nullptr || shape_.elements() == 0; }

  void* raw() const { return data_; }
  /// The first element as T. T must have the size of the dtype.
  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }

  /// Rows [begin, begin + count) of the outermost dimension.
  Tensor rows(int64_t begin, int64_t count) const;
  /// Columns [begin, begin + count) of a rank-2 tensor [rows, columns].
  Tensor columns(int64_t begin, int64_t count) const;
  /// A contiguous tensor's elements under another shape with the same number of elements.
  Tensor reshaped(const Shape& shape) const;
  /// A rank-2 view [rows, heads * dim] (columns may be strided by row) as [rows, heads, dim].
  Tensor split_heads(int64_t heads, int64_t dim) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  Device device_;
  Shape shape_;
  std::array<int64_t, Shape::kMaxRank> strides_{};
};

/// A contiguous tensor together with its memory.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(DType dtype, const Shape& shape, Device device = {});

  const Tensor& view() const { return view_; }
  size_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  Tensor view_;
};

}  // namespace minisgl
