#include "kvcache/kv_pool.h"

#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"

namespace minisgl {

size_t CacheGroup::layer_page_bytes() const {
  return 2 * static_cast<size_t>(kv_heads) * static_cast<size_t>(page_size) * static_cast<size_t>(head_dim) * dtype_size(dtype);
}

KvPool::KvPool(CacheGroup group, int64_t num_pages, Device device) : group_(std::move(group)), num_pages_(num_pages) {
  MINISGL_CHECK(group_.page_size > 0 && group_.kv_heads > 0 && group_.head_dim > 0);
  // Slots are int32: page * page_size + offset, the dummy page included.
  MINISGL_CHECK(num_pages > 0 && num_pages < std::numeric_limits<int32_t>::max() / group_.page_size, "{} pages of {} tokens", num_pages,
                group_.page_size);
  const auto pages = static_cast<size_t>(num_pages) + 1;
  for (size_t i = 0; i < group_.layers.size(); ++i) {
    Buffer& buffer = buffers_.emplace_back(device, pages * group_.layer_page_bytes());
    layers_.push_back({.data = buffer.data(),
                       .dtype = group_.dtype,
                       .num_pages = static_cast<int64_t>(pages),
                       .page_size = group_.page_size,
                       .kv_heads = group_.kv_heads,
                       .head_dim = group_.head_dim});
  }
}

size_t KvPool::bytes() const {
  return (static_cast<size_t>(num_pages_) + 1) * group_.page_bytes();
}

void KvPool::zero_page(int32_t page) {
  const size_t bytes = group_.layer_page_bytes();
  for (const KvLayer& layer : layers_) std::memset(static_cast<std::byte*>(layer.data) + static_cast<size_t>(page) * bytes, 0, bytes);
}

void KvPool::copy_page(int32_t source, int32_t destination) {
  const size_t bytes = group_.layer_page_bytes();
  for (const KvLayer& layer : layers_) {
    auto* base = static_cast<std::byte*>(layer.data);
    std::memmove(base + static_cast<size_t>(destination) * bytes, base + static_cast<size_t>(source) * bytes, bytes);
  }
}

}  // namespace minisgl
