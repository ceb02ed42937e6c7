#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// A set of layers with one unit of storage: every layer of the group keeps the keys and values of a page under the same page number, and
/// pages are allocated for all of them at once.
struct CacheGroup {
  std::vector<int> layers;  ///< layer numbers of the model, ascending
  int page_size = 0;        ///< tokens per page
  int kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::kFloat32;

  /// Keys and values of one page in one layer.
  size_t layer_page_bytes() const;
  /// Keys and values of one page in all layers of the group.
  size_t page_bytes() const { return layer_page_bytes() * layers.size(); }
};

/// The memory of one cache group: per layer [page][K|V][kv_head][page_size][head_dim]. One page more than can be allocated: the dummy
/// page, which padding reads and writes. Memory is resident only where it was written.
class KvPool {
 public:
  /// Throws Error(kOutOfMemory) if the system refuses, Error(kInternal) if the sizes overflow.
  KvPool(CacheGroup group, int64_t num_pages, Device device);

  const CacheGroup& group() const { return group_; }
  /// Pages that can be allocated: [0, num_pages()).
  int64_t num_pages() const { return num_pages_; }
  int32_t dummy_page() const { return static_cast<int32_t>(num_pages_); }
  size_t bytes() const;
  /// One per layer of the group, in the order of group().layers.
  std::span<const KvLayer> layers() const { return layers_; }

  /// Host memory only: sets a page to zero, or copies one, in all layers.
  void zero_page(int32_t page);
  void copy_page(int32_t source, int32_t destination);

 private:
  CacheGroup group_;
  int64_t num_pages_;
  std::vector<Buffer> buffers_;
  std::vector<KvLayer> layers_;
};

}  // namespace minisgl
