// A token's logits have the same bits however the batch, the chunks, the pages and the threads are cut.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_path.h"
#include "model/decoder_harness.h"
#include "model/fixtures.h"

namespace minisgl {
namespace {

using Logits = std::vector<float>;

std::unique_ptr<DecoderHarness> make_harness(const std::string& name, const DecoderHarness::Options& options) {
  const std::filesystem::path folder = std::filesystem::path(MINISGL_TEST_DATA) / "models" / name;
  auto harness = std::make_unique<DecoderHarness>(load_model_config(folder), options);
  harness->decoder().load(*open_checkpoint(resolve_model_path(folder.string())), {});
  return harness;
}

std::vector<int32_t> sequence(int length, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back((i * 389 + seed * 211 + i * i) % 1000);
  return ids;
}

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

class InvarianceTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kLength = 150;

  static const DType kDTypes[2];
  Logits whole(const DecoderHarness::Options& options) { return make_harness(GetParam(), options)->run(sequence(kLength, 1)); }
};
const DType InvarianceTest::kDTypes[2] = {DType::kFloat32, DType::kBFloat16};

TEST_P(InvarianceTest, ChunksDoNotMatter) {
  for (const DType dtype : kDTypes) {
    const auto harness = make_harness(GetParam(), {.dtype = dtype});
    const Logits expected = harness->run(sequence(kLength, 1));
    for (const int64_t chunk : {1, 5, 7, 64}) {
      EXPECT_TRUE(same_bits(harness->run(sequence(kLength, 1), chunk), expected)) << dtype_name(dtype) << ", chunks of " << chunk;
    }
  }
}

TEST_P(InvarianceTest, OtherRowsDoNotMatter) {
  for (const DType dtype : kDTypes) {
    const auto harness = make_harness(GetParam(), {.dtype = dtype, .rows = 4});
    const int64_t vocab = harness->decoder().config().vocab_size;
    const std::vector<int> lengths = {kLength, 20, 33, 64};
    std::vector<Logits> alone;
    for (size_t row = 0; row < lengths.size(); ++row) alone.push_back(harness->run(sequence(lengths[row], static_cast<int>(row) + 1)));
    for (size_t row = 0; row < lengths.size(); ++row) {
      harness->set_sequence(static_cast<int>(row), sequence(lengths[row], static_cast<int>(row) + 1));
    }
    // Prefill beside decode, whole prompts beside chunks, rows in changing order.
    const std::vector<std::vector<DecoderHarness::Piece>> steps = {
        {{1, 19}, {0, 70}}, {{0, 1}, {2, 33}, {1, 1}}, {{3, 63}, {0, 1}}, {{0, 78}, {3, 1}}};
    std::map<int, Logits> together;
    for (const auto& pieces : steps) {
      const Logits logits = harness->step(pieces);
      int64_t token = 0;
      for (const auto& piece : pieces) {
        const auto begin = logits.begin() + token * vocab;
        together[piece.row].insert(together[piece.row].end(), begin, begin + piece.count * vocab);
        token += piece.count;
      }
    }
    for (size_t row = 0; row < lengths.size(); ++row) {
      EXPECT_TRUE(same_bits(together[static_cast<int>(row)], alone[row])) << dtype_name(dtype) << ", row " << row;
    }
  }
}

TEST_P(InvarianceTest, ThreadsAndPageSizeDoNotMatter) {
  for (const DType dtype : kDTypes) {
    const Logits expected = whole({.dtype = dtype, .threads = 1, .page_size = 16});
    EXPECT_TRUE(same_bits(whole({.dtype = dtype, .threads = 2, .page_size = 16}), expected)) << dtype_name(dtype) << ", 2 threads";
    EXPECT_TRUE(same_bits(whole({.dtype = dtype, .threads = 1, .page_size = 1}), expected)) << dtype_name(dtype) << ", pages of 1";
    EXPECT_TRUE(same_bits(whole({.dtype = dtype, .threads = 2, .page_size = 4}), expected)) << dtype_name(dtype) << ", pages of 4";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest, testing::ValuesIn(fixtures::model_names()), fixtures::test_name);

}  // namespace
}  // namespace minisgl
