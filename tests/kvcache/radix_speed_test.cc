#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

#include "kvcache/prefix_cache_harness.h"

namespace minisgl {
namespace {

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Prints, for the record: match and insert of 4,096 tokens and eviction per page in trees of `tree_tokens`. Pages are handed out in a
/// random order, as after hours of use. `one_page_nodes`: the worst tree, in which every page is a node.
void measure(int32_t page_size, int32_t tree_tokens, bool one_page_nodes) {
  constexpr int32_t kPromptTokens = 4096;
  const int32_t prompts = tree_tokens / (kPromptTokens * 3 / 4) / 2 * 2;
  const int32_t prompt_pages = kPromptTokens / page_size;
  const int32_t tree_pages = prompts * prompt_pages;
  RadixHarness h(tree_pages, page_size);
  std::mt19937 random(1);
  Pages shuffled = h.take(static_cast<size_t>(tree_pages));
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  h.pages.retire(shuffled, 0);

  // Half of each prompt is shared with one other prompt.
  std::vector<Tokens> keys(static_cast<size_t>(prompts), Tokens(kPromptTokens));
  for (size_t i = 0; i < keys.size(); ++i) {
    for (int32_t& token : keys[i]) token = static_cast<int32_t>(random() % 32000);
    if (i % 2 == 1) std::copy_n(keys[i - 1].begin(), kPromptTokens / 2, keys[i].begin());
  }
  std::vector<double> insert_us, match_us, evict_us;
  const auto timed_insert = [&](const Tokens& key) {
    h.own = h.take(static_cast<size_t>(prompt_pages));
    h.duplicates.clear();
    const auto start = std::chrono::steady_clock::now();
    h.cache.insert(0, key, h.own, 0, h.duplicates);
    insert_us.push_back(microseconds_since(start));
    for (const auto& duplicate : h.duplicates) h.pages.retire({&duplicate.own_page, 1}, 0);
  };
  for (const Tokens& key : keys) timed_insert(key);
  insert_us.clear();
  for (size_t i = 0; one_page_nodes && i < keys.size(); ++i) {
    for (int32_t pages = prompt_pages; pages-- > 1;) {
      h.matched.clear();
      h.cache.match(0, std::span(keys[i]).first(static_cast<size_t>(pages * page_size)), h.matched);
    }
  }
  const int32_t cached_tokens = h.cache.cached_pages() * page_size;
  const int32_t nodes = h.cache.num_nodes();
  for (int i = 0; i < 1000; ++i) {
    const Tokens& key = keys[random() % keys.size()];
    h.matched.clear();
    const auto start = std::chrono::steady_clock::now();
    h.cache.match(0, key, h.matched);
    match_us.push_back(microseconds_since(start));
  }
  for (int i = 0; i < 1000; ++i) {
    const int32_t count = 1 + static_cast<int32_t>(random() % 64);
    const auto start = std::chrono::steady_clock::now();
    h.cache.evict(count);
    evict_us.push_back(microseconds_since(start) / count);
    const Tokens& key = keys[random() % keys.size()];
    if (h.cache.matched_pages(0, key) < prompt_pages) {
      h.cache.evict(std::max(0, prompt_pages - h.pages.free()));
      timed_insert(key);
    }
  }
  std::printf("page size %2d, %8d tokens in %6d pages, %6d nodes: match %.2f us, insert %.2f us, evict %.4f us per page\n", page_size,
              cached_tokens, cached_tokens / page_size, nodes, median(match_us), median(insert_us), median(evict_us));
}

TEST(LongRadixSpeed, MatchInsertAndEvict) {
  for (const int32_t page_size : {16, 1}) {
    for (const int32_t tokens : {65'000, 250'000, 1'000'000, 4'000'000}) measure(page_size, tokens, false);
  }
  for (const int32_t tokens : {65'000, 1'000'000}) measure(16, tokens, true);
}

}  // namespace
}  // namespace minisgl
