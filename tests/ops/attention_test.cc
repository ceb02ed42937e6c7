#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ops/cpu_ops_fixture.h"

namespace minisgl {
namespace {

struct Heads {
  int64_t query = 4;
  int64_t kv = 2;
  int64_t dim = 64;
};

/// Queries, keys and values of one sequence: [length, heads * dim].
struct Sequence {
  Sequence(int64_t length, const Heads& heads, DType dtype, uint64_t seed)
      : length(length),
        q(dtype, length, heads.query * heads.dim),
        k(dtype, length, heads.kv * heads.dim),
        v(dtype, length, heads.kv * heads.dim) {
    q.fill(seed);
    k.fill(seed + 1);
    v.fill(seed + 2);
  }

  int64_t length;
  Matrix q, k, v;
};

/// Where the sequences of a test live: pages in shuffled order, every slot NaN until it is written.
class PagedCache {
 public:
  PagedCache(const std::vector<int64_t>& lengths, const Heads& heads, DType dtype, int page_size, uint64_t seed) : page_size_(page_size) {
    int64_t pages = 0, longest = 0;
    for (const int64_t length : lengths) {
      pages += pages_of(length);
      longest = std::max(longest, pages_of(length));
    }
    std::vector<int32_t> order(static_cast<size_t>(pages + 3));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    memory_ = OwnedTensor(dtype, {(pages + 3) * 2 * heads.kv * page_size * heads.dim});
    for (int64_t i = 0; i < memory_.view().size(0); ++i) set_element(memory_.view(), i, std::nanf(""));
    layer = {memory_.view().raw(), dtype, pages + 3, page_size, static_cast<int>(heads.kv), static_cast<int>(heads.dim)};
    stride = longest + 2;
    // Entries beyond a sequence's pages must never be followed.
    table.assign(lengths.size() * static_cast<size_t>(stride), std::numeric_limits<int32_t>::max());
    size_t next = 0;
    for (size_t row = 0; row < lengths.size(); ++row) {
      for (int64_t p = 0; p < pages_of(lengths[row]); ++p)
        table[row * static_cast<size_t>(stride) + static_cast<size_t>(p)] = order[next++];
    }
  }

  int32_t slot(int64_t row, int64_t position) const {
    return table[static_cast<size_t>(row * stride + position / page_size_)] * page_size_ + static_cast<int32_t>(position % page_size_);
  }

  KvLayer layer;
  std::vector<int32_t> table;
  int64_t stride = 0;

 private:
  int64_t pages_of(int64_t length) const { return (length + page_size_ - 1) / page_size_; }

  int page_size_;
  OwnedTensor memory_;
};

/// One step: for each sequence, the tokens [begin, end) of it.
struct Part {
  int64_t row;
  int64_t begin;
  int64_t end;
};

struct Options {
  Heads heads;
  DType activation = DType::kFloat32;
  DType cache = DType::kFloat32;
  int page_size = 16;
  int64_t window = 0;
  uint64_t page_seed = 1;
};

float scale_of(const Heads& heads) {
  return 1.0f / std::sqrt(static_cast<float>(heads.dim));
}

/// Runs the steps as an engine would (store, then attend) and returns each sequence's output.
std::vector<Matrix> run_steps(Ops& ops, const std::vector<Sequence>& sequences, const std::vector<std::vector<Part>>& steps,
                              const Options& options) {
  const Heads& heads = options.heads;
  std::vector<int64_t> lengths;
  std::vector<Matrix> outputs;
  for (const Sequence& sequence : sequences) {
    lengths.push_back(sequence.length);
    outputs.emplace_back(options.activation, sequence.length, heads.query * heads.dim);
  }
  PagedCache cache(lengths, heads, options.cache, options.page_size, options.page_seed);
  const int64_t q_columns = heads.query * heads.dim, kv_columns = heads.kv * heads.dim;
  const auto bytes = static_cast<size_t>(dtype_size(options.activation));
  for (const std::vector<Part>& step : steps) {
    int64_t tokens = 0;
    for (const Part& part : step) tokens += part.end - part.begin;
    // q, k and v are columns of one matrix, as the projection gives them.
    Matrix qkv(options.activation, tokens, q_columns + 2 * kv_columns, 3);
    Matrix out(options.activation, tokens, q_columns, 5);
    std::vector<int32_t> starts{0}, kv_lengths, rows, slots;
    for (const Part& part : step) {
      for (int64_t p = part.begin; p < part.end; ++p) {
        const Sequence& sequence = sequences[static_cast<size_t>(part.row)];
        char* target =
            static_cast<char*>(qkv.view.raw()) + static_cast<int64_t>(slots.size()) * qkv.view.stride(0) * static_cast<int64_t>(bytes);
        const auto copy = [&](const Matrix& from, int64_t columns) {
          std::memcpy(target, static_cast<const char*>(from.view.raw()) + p * columns * static_cast<int64_t>(bytes),
                      static_cast<size_t>(columns) * bytes);
          target += columns * static_cast<int64_t>(bytes);
        };
        copy(sequence.q, q_columns);
        copy(sequence.k, kv_columns);
        copy(sequence.v, kv_columns);
        slots.push_back(cache.slot(part.row, p));
      }
      starts.push_back(static_cast<int32_t>(slots.size()));
      kv_lengths.push_back(static_cast<int32_t>(part.end));
      rows.push_back(static_cast<int32_t>(part.row));
    }
    const auto columns = [&](int64_t begin, int64_t head_count) {
      return qkv.view.columns(begin, head_count * heads.dim).split_heads(head_count, heads.dim);
    };
    ops.store_kv(columns(q_columns, heads.kv), columns(q_columns + kv_columns, heads.kv), vector_view(slots), cache.layer);
    const AttentionBatch batch{
        static_cast<int64_t>(step.size()), starts.data(), kv_lengths.data(), cache.table.data(), rows.data(), cache.stride};
    ops.attention(columns(0, heads.query), cache.layer, batch, scale_of(heads), options.window, out.view);
    int64_t t = 0;
    for (const Part& part : step) {
      for (int64_t p = part.begin; p < part.end; ++p, ++t) {
        for (int64_t c = 0; c < q_columns; ++c) {
          set_element(outputs[static_cast<size_t>(part.row)].view, p * q_columns + c, static_cast<float>(element(out.view, t, c)));
        }
      }
    }
  }
  return outputs;
}

std::vector<std::vector<Part>> chunks_of(int64_t length, int64_t chunk) {
  std::vector<std::vector<Part>> steps;
  for (int64_t begin = 0; begin < length; begin += chunk) steps.push_back({{0, begin, std::min(begin + chunk, length)}});
  return steps;
}

std::vector<uint32_t> run_one(Ops& ops, const Sequence& sequence, int64_t chunk, const Options& options) {
  std::vector<Sequence> sequences;
  sequences.push_back(Sequence(sequence));
  return bits_of(run_steps(ops, sequences, chunks_of(sequence.length, chunk), options)[0].view);
}

/// What the cache holds of x.
double cached(double x, DType cache) {
  return cache == DType::kBFloat16 ? static_cast<float>(BFloat16(static_cast<float>(x))) : x;
}

void expect_reference(const Sequence& sequence, const Matrix& out, const Options& options) {
  const Heads& heads = options.heads;
  const double scale = scale_of(heads);
  for (int64_t p = 0; p < sequence.length; ++p) {
    const int64_t first = options.window > 0 ? std::max<int64_t>(0, p + 1 - options.window) : 0;
    for (int64_t h = 0; h < heads.query; ++h) {
      const int64_t kv_column = h / (heads.query / heads.kv) * heads.dim;
      std::vector<double> weights;
      double largest = -1e300, sum = 0.0;
      for (int64_t j = first; j <= p; ++j) {
        double score = 0.0;
        for (int64_t d = 0; d < heads.dim; ++d) {
          score += element(sequence.q.view, p, h * heads.dim + d) * cached(element(sequence.k.view, j, kv_column + d), options.cache);
        }
        weights.push_back(score * scale);
        largest = std::max(largest, score * scale);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (int64_t d = 0; d < heads.dim; ++d) {
        double want = 0.0;
        for (int64_t j = first; j <= p; ++j) {
          want += weights[static_cast<size_t>(j - first)] / sum * cached(element(sequence.v.view, j, kv_column + d), options.cache);
        }
        const double got = element(out.view, p, h * heads.dim + d);
        ASSERT_TRUE(close_to(got, want, options.activation, 2e-6, 2e-6))
            << "position " << p << " head " << h << " element " << d << ": " << got << ", expected " << want;
      }
    }
  }
}

using CpuAttention = CpuOpsTest;
MINISGL_EACH_ISA(CpuAttention);

TEST_P(CpuAttention, MatchesDoublePrecision) {
  const Heads shapes[] = {{4, 2, 64}, {4, 4, 96}, {2, 1, 128}, {1, 1, 256}, {6, 2, 80}, {7, 1, 33}, {8, 1, 16}, {3, 1, 7}};
  for (const Heads& heads : shapes) {
    for (const DType activation : kActivationTypes) {
      for (const DType cache : kActivationTypes) {
        for (const int64_t window : {0, 50}) {
          Options options{heads, activation, cache, 16, window};
          std::vector<Sequence> sequences;
          sequences.emplace_back(135, heads, activation, 7);
          SCOPED_TRACE(testing::Message() << heads.query << " heads, " << heads.kv << " KV heads of " << heads.dim << ", "
                                          << dtype_name(activation) << ", cache " << dtype_name(cache) << ", window " << window);
          expect_reference(sequences[0], run_steps(*ops, sequences, chunks_of(135, 135), options)[0], options);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(CpuAttention, BitsDoNotDependOnChunksPagesOrTheirOrder) {
  for (const Heads& heads : {Heads{4, 2, 64}, Heads{5, 5, 40}, Heads{9, 1, 32}, Heads{100, 1, 16}}) {
    for (const DType cache : kActivationTypes) {
      for (const int64_t window : {0, 45}) {
        Options options{heads, DType::kFloat32, cache, 256, window};
        const Sequence sequence(heads.query > 50 ? 70 : 150, heads, DType::kFloat32, 11);
        const std::vector<uint32_t> contiguous = run_one(*ops, sequence, sequence.length, options);
        const std::pair<int, int64_t> page_sizes_and_chunks[] = {{1, 64}, {16, 1}, {16, 7}, {24, 5}, {64, 64}, {3, sequence.length}};
        for (const auto& [page_size, chunk] : page_sizes_and_chunks) {
          options.page_size = page_size;
          options.page_seed += 1;
          ASSERT_EQ(run_one(*ops, sequence, chunk, options), contiguous)
              << heads.query << " heads of " << heads.dim << ", window " << window << ", pages of " << page_size << ", chunks of " << chunk;
        }
      }
    }
  }
}

TEST_P(CpuAttention, BitsDoNotDependOnTheBatchOrTheThreads) {
  const Heads heads{4, 2, 64};
  for (const DType dtype : kActivationTypes) {
    Options options{heads, dtype, dtype, 16, 90};
    std::vector<Sequence> sequences;
    const int64_t lengths[] = {1, 64, 65, 130, 200};
    for (const int64_t length : lengths) sequences.emplace_back(length, heads, dtype, static_cast<uint64_t>(length));
    // Prefills of different lengths, then decodes beside a late prefill.
    const std::vector<std::vector<Part>> steps = {{{4, 0, 150}, {0, 0, 1}, {2, 0, 40}},
                                                  {{2, 40, 64}, {4, 150, 151}},
                                                  {{1, 0, 64}, {2, 64, 65}, {4, 151, 152}},
                                                  {{3, 0, 130}, {4, 152, 200}}};
    const std::vector<Matrix> together = run_steps(*ops, sequences, steps, options);
    for (const int threads : {1, 3}) {
      ComputePool other_pool(threads);
      const std::unique_ptr<Ops> other = cpu::make_cpu_ops(other_pool, GetParam());
      for (size_t i = 0; i < sequences.size(); ++i) {
        EXPECT_EQ(run_one(*other, sequences[i], sequences[i].length, options), bits_of(together[i].view)) << "sequence " << i;
      }
    }
  }
}

TEST_P(CpuAttention, LaterPositionsCannotLeakIntoEarlierOnes) {
  const Heads heads{6, 2, 48};
  for (const int64_t window : {0, 30}) {
    const Options options{heads, DType::kFloat32, DType::kFloat32, 16, window};
    const Sequence clean(100, heads, DType::kFloat32, 3);
    const std::vector<uint32_t> want = run_one(*ops, clean, 100, options);
    for (const int64_t bad : {1, 50, 63, 64, 99}) {
      for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Sequence poisoned(clean);
        for (int64_t c = 0; c < heads.kv * heads.dim; ++c) {
          set_element(poisoned.k.view, bad * heads.kv * heads.dim + c, poison);
          set_element(poisoned.v.view, bad * heads.kv * heads.dim + c, poison);
        }
        const std::vector<uint32_t> got = run_one(*ops, poisoned, 100, options);
        const auto columns = heads.query * heads.dim;
        for (int64_t p = 0; p < 100; ++p) {
          const bool sees = p >= bad && (window == 0 || p < bad + window);
          const bool equal = std::equal(got.begin() + p * columns, got.begin() + (p + 1) * columns, want.begin() + p * columns);
          ASSERT_EQ(equal, !sees) << "position " << p << ", poison at " << bad << ", window " << window;
        }
      }
    }
  }
}

TEST_P(CpuAttention, PagesBeforeTheWindowAreNotRead) {
  const Heads heads{2, 1, 32};
  const int64_t window = 20, length = 150;
  const Sequence sequence(length, heads, DType::kFloat32, 5);
  const std::vector<uint32_t> want = run_one(*ops, sequence, length, {heads, DType::kFloat32, DType::kFloat32, 8, window});

  PagedCache cache({length}, heads, DType::kFloat32, 8, 9);
  std::vector<int32_t> slots;
  for (int64_t p = 0; p < length; ++p) slots.push_back(cache.slot(0, p));
  ops->store_kv(sequence.k.view.split_heads(1, heads.dim), sequence.v.view.split_heads(1, heads.dim), vector_view(slots), cache.layer);
  for (int64_t page = 0; (page + 1) * 8 <= length - window; ++page) cache.table[static_cast<size_t>(page)] = -1000000000;
  const int32_t start[] = {0, 1}, kv_length[] = {length}, row[] = {0};
  Matrix out(DType::kFloat32, 1, heads.query * heads.dim);
  ops->attention(sequence.q.view.rows(length - 1, 1).split_heads(heads.query, heads.dim), cache.layer,
                 {1, start, kv_length, cache.table.data(), row, cache.stride}, scale_of(heads), window, out.view);
  EXPECT_EQ(bits_of(out.view), std::vector<uint32_t>(want.end() - heads.query * heads.dim, want.end()));
}

TEST_P(CpuAttention, LargeScoresDoNotOverflow) {
  const Heads heads{1, 1, 64};
  Sequence sequence(130, heads, DType::kFloat32, 17);
  for (int64_t i = 0; i < sequence.length * heads.dim; ++i) {
    set_element(sequence.q.view, i, static_cast<float>(element(sequence.q.view, i)) * 100.0f);
    set_element(sequence.k.view, i, static_cast<float>(element(sequence.k.view, i)) * 100.0f);
  }
  std::vector<Sequence> sequences;
  sequences.push_back(sequence);
  const Matrix out = std::move(run_steps(*ops, sequences, chunks_of(130, 130), {heads})[0]);
  for (int64_t i = 0; i < 130 * heads.dim; ++i) ASSERT_TRUE(std::isfinite(element(out.view, i)));
}

}  // namespace
}  // namespace minisgl
