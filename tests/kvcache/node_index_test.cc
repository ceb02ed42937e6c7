#include "kvcache/node_index.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace minisgl {
namespace {

TEST(NodeIndex, FindsWhatIsThereAmongEqualHashesAndNothingElse) {
  constexpr int kNodes = 40;
  std::mt19937 random(7);
  for (const uint32_t hashes : {1u, 3u, 1000u}) {
    NodeIndex index(kNodes);
    std::vector<int> present(kNodes, 0);
    const auto hash_of = [&](int32_t node) { return static_cast<uint32_t>(node) % hashes * 0x01234567u; };
    for (int i = 0; i < 5000; ++i) {
      const auto node = static_cast<int32_t>(random() % kNodes);
      if (present[static_cast<size_t>(node)]) {
        index.erase(hash_of(node), node);
      } else {
        index.insert(hash_of(node), node);
      }
      present[static_cast<size_t>(node)] ^= 1;
      uint64_t probes = 0;
      for (int32_t n = 0; n < kNodes; ++n) {
        const int32_t found = index.find(
            hash_of(n), [&](int32_t candidate) { return candidate == n; }, probes);
        ASSERT_EQ(found, present[static_cast<size_t>(n)] ? n : -1) << "operation " << i << ", " << hashes << " hashes";
      }
    }
  }
}

TEST(NodeIndex, ReplacesInPlace) {
  NodeIndex index(4);
  index.insert(9, 0);
  index.insert(9, 1);
  index.replace(9, 0, 2);
  uint64_t probes = 0;
  EXPECT_EQ(index.find(
                9, [](int32_t n) { return n == 0; }, probes),
            -1);
  EXPECT_EQ(index.find(
                9, [](int32_t n) { return n == 2; }, probes),
            2);
  EXPECT_EQ(index.size(), 2);
  EXPECT_ANY_THROW(index.erase(9, 0));
}

}  // namespace
}  // namespace minisgl
