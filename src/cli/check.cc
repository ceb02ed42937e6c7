#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "attention/attention_backend.h"
#include "base/compute_pool.h"
#include "base/error.h"
#include "checkpoint/model_config.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "distributed/communicator.h"
#include "model/decoder.h"
#include "ops/cpu/cpu_ops.h"

namespace minisgl::cli {

namespace {

/// What a check found: empty if all is well, otherwise one line.
using Finding = std::string;

/// Repeatable values in [-1, 1): a check must give the same answer on every run.
std::vector<float> values(int64_t count, uint32_t seed) {
  std::vector<float> result(static_cast<size_t>(count));
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : result) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) * 0x1p-23f;
  }
  return result;
}

Tensor view(std::vector<float>& data, const Shape& shape) {
  return Tensor(data.data(), DType::kFloat32, shape);
}

Finding compare(const std::vector<float>& got, const std::vector<double>& expected, double tolerance) {
  double scale = 1e-30;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!(error <= tolerance * scale))
      return fmt::format("element {} is {}, expected {} (tolerance {:g})", i, got[i], expected[i], tolerance);
  }
  return "";
}

Finding same_bits(const std::vector<float>& a, const std::vector<float>& b, std::string_view what) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0 ? "" : fmt::format("bits depend on {}", what);
}

Finding check_linear(Ops& ops, DType dtype) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kN = 131;
  constexpr int64_t kK = 576;
  std::vector<float> x = values(kRows * kK, 1);
  std::vector<float> w = values(kN * kK, 2);
  if (dtype == DType::kBFloat16) {
    for (float& value : w) value = static_cast<float>(BFloat16(value));
  }
  const auto weight = ops.create_linear_weight(kN, kK, dtype, 8);
  ops.pack_rows(*weight, 0, view(w, {kN, kK}));
  std::vector<float> out(kRows * kN);
  ops.linear(view(x, {kRows, kK}), *weight, {}, view(out, {kRows, kN}));
  std::vector<double> expected(out.size());
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < kK; ++k) sum += static_cast<double>(x[static_cast<size_t>(m * kK + k)]) * w[static_cast<size_t>(n * kK + k)];
      expected[static_cast<size_t>(m * kN + n)] = sum;
    }
  }
  if (Finding finding = compare(out, expected, 1e-5); !finding.empty()) return finding;
  std::vector<float> one_by_one(out.size());
  for (int64_t m = 0; m < kRows; ++m) {
    ops.linear(view(x, {kRows, kK}).rows(m, 1), *weight, {}, view(one_by_one, {kRows, kN}).rows(m, 1));
  }
  return same_bits(out, one_by_one, "the number of rows");
}

Finding check_rms_norm(Ops& ops) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kHidden = 577;
  std::vector<float> x = values(kRows * kHidden, 3);
  std::vector<float> w = values(kHidden, 4);
  std::vector<float> out(x.size());
  ops.rms_norm(view(x, {kRows, kHidden}), view(w, {kHidden}), 1e-6f, view(out, {kRows, kHidden}));
  std::vector<double> expected(x.size());
  for (int64_t r = 0; r < kRows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < kHidden; ++i) squares += std::pow(static_cast<double>(x[static_cast<size_t>(r * kHidden + i)]), 2);
    const double scale = 1 / std::sqrt(squares / kHidden + 1e-6);
    for (int64_t i = 0; i < kHidden; ++i) {
      const auto at = static_cast<size_t>(r * kHidden + i);
      expected[at] = x[at] * scale * w[static_cast<size_t>(i)];
    }
  }
  return compare(out, expected, 1e-5);
}

/// Pages, page table and slots of one sequence whose pages are in reverse order: nothing may depend on where a page lies.
struct PagedSequence {
  PagedSequence(int64_t length, int page_size)
      : page_table(static_cast<size_t>((length + page_size - 1) / page_size)), slots(static_cast<size_t>(length)) {
    const auto pages = static_cast<int32_t>(page_table.size());
    for (int32_t i = 0; i < pages; ++i) page_table[static_cast<size_t>(i)] = pages - 1 - i;
    for (int32_t p = 0; p < static_cast<int32_t>(length); ++p) {
      slots[static_cast<size_t>(p)] = page_table[static_cast<size_t>(p / page_size)] * page_size + p % page_size;
    }
  }
  /// The batch that computes positions [begin, begin + count).
  AttentionBatch batch(int32_t begin, int32_t count) {
    query_start = {0, count};
    kv_length = begin + count;
    return {1, query_start.data(), &kv_length, page_table.data(), &row_index, static_cast<int64_t>(page_table.size())};
  }

  std::vector<int32_t> page_table;
  std::vector<int32_t> slots;
  std::vector<int32_t> query_start;
  int32_t kv_length = 0;
  int32_t row_index = 0;
};

Finding check_attention(Ops& ops) {
  constexpr int64_t kLength = 150;
  constexpr int kHeads = 4;
  constexpr int kKvHeads = 2;
  constexpr int kDim = 64;
  constexpr int kPageSize = 16;
  std::vector<float> q = values(kLength * kHeads * kDim, 5);
  std::vector<float> k = values(kLength * kKvHeads * kDim, 6);
  std::vector<float> v = values(kLength * kKvHeads * kDim, 7);
  PagedSequence sequence(kLength, kPageSize);
  const auto pages = static_cast<int64_t>(sequence.page_table.size());
  OwnedTensor pool(DType::kFloat32, {pages * 2, kKvHeads, kPageSize, kDim});
  const KvLayer kv{pool.view().raw(), DType::kFloat32, pages, kPageSize, kKvHeads, kDim};
  ops.store_kv(view(k, {kLength, kKvHeads, kDim}), view(v, {kLength, kKvHeads, kDim}),
               Tensor(sequence.slots.data(), DType::kInt32, {kLength}), kv);
  std::vector<float> out(q.size());
  const float scale = 1 / std::sqrt(static_cast<float>(kDim));
  ops.attention(view(q, {kLength, kHeads, kDim}), kv, sequence.batch(0, kLength), scale, 0, view(out, {kLength, kHeads * kDim}));

  std::vector<double> expected(q.size());
  for (int64_t t = 0; t < kLength; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t g = h * kKvHeads / kHeads;
      const float* query = &q[static_cast<size_t>((t * kHeads + h) * kDim)];
      std::vector<double> weights(static_cast<size_t>(t + 1));
      for (int64_t s = 0; s <= t; ++s) {
        const float* key = &k[static_cast<size_t>((s * kKvHeads + g) * kDim)];
        weights[static_cast<size_t>(s)] = std::exp(scale * std::inner_product(query, query + kDim, key, 0.0));
      }
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (int64_t d = 0; d < kDim; ++d) {
        double sum = 0;
        for (int64_t s = 0; s <= t; ++s) sum += weights[static_cast<size_t>(s)] * v[static_cast<size_t>((s * kKvHeads + g) * kDim + d)];
        expected[static_cast<size_t>((t * kHeads + h) * kDim + d)] = sum / total;
      }
    }
  }
  return compare(out, expected, 1e-5);
}

/// A small model with random weights: the logits of a prompt computed whole and in chunks of `chunk` tokens.
Finding check_decoder(Ops& ops, DType dtype) {
  constexpr int32_t kLength = 70;
  constexpr int kPageSize = 16;
  const ModelConfig config = parse_model_config(
      R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":128,"intermediate_size":256,"num_hidden_layers":2,
          "num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"vocab_size":512,"max_position_embeddings":128,
          "rms_norm_eps":1e-6,"hidden_act":"silu","tie_word_embeddings":true,"attention_bias":false,"rope_theta":10000.0})",
      "", "check");
  const auto communicator = make_self_communicator();
  Decoder decoder(config, dtype, kLength, kLength, ops, *communicator);
  decoder.load_dummy({});
  const auto attention = make_cpu_attention_backend(ops);
  PagedSequence sequence(kLength, kPageSize);
  const auto pages = static_cast<int64_t>(sequence.page_table.size());

  std::vector<int32_t> ids(kLength);
  std::vector<int32_t> positions(kLength);
  for (int32_t i = 0; i < kLength; ++i) {
    ids[static_cast<size_t>(i)] = i * 37 % 512;
    positions[static_cast<size_t>(i)] = i;
  }
  const auto logits_in_chunks = [&](int32_t chunk) {
    std::vector<OwnedTensor> pools;
    std::vector<KvLayer> kv;
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      pools.emplace_back(dtype, Shape{pages * 2, config.num_kv_heads, kPageSize, config.head_dim});
      kv.push_back(
          {pools.back().view().raw(), dtype, pages, kPageSize, static_cast<int>(config.num_kv_heads), static_cast<int>(config.head_dim)});
    }
    std::vector<float> logits(static_cast<size_t>(config.vocab_size));
    for (int32_t begin = 0; begin < kLength; begin += chunk) {
      const int32_t count = std::min(chunk, kLength - begin);
      const auto slice = [&](std::vector<int32_t>& all) { return Tensor(all.data() + begin, DType::kInt32, {count}); };
      decoder.forward({slice(ids), slice(positions), slice(sequence.slots), sequence.batch(begin, count)}, *attention, kv);
      int32_t last = count - 1;
      decoder.head(Tensor(&last, DType::kInt32, {1}), view(logits, {1, config.vocab_size}));
    }
    return logits;
  };
  const std::vector<float> whole = logits_in_chunks(kLength);
  if (std::any_of(whole.begin(), whole.end(), [](float x) { return !std::isfinite(x); })) return "a logit is not finite";
  for (const int32_t chunk : {1, 7, 64}) {
    if (Finding finding = same_bits(whole, logits_in_chunks(chunk), fmt::format("the chunk size ({})", chunk)); !finding.empty())
      return finding;
  }
  return "";
}

struct Check {
  const char* name;
  std::function<Finding(Ops&)> run;
};

const std::vector<Check>& checks() {
  static const std::vector<Check> list = {
      {"linear float32", [](Ops& ops) { return check_linear(ops, DType::kFloat32); }},
      {"linear bfloat16", [](Ops& ops) { return check_linear(ops, DType::kBFloat16); }},
      {"rms_norm", check_rms_norm},
      {"attention", check_attention},
      {"decoder float32", [](Ops& ops) { return check_decoder(ops, DType::kFloat32); }},
      {"decoder bfloat16", [](Ops& ops) { return check_decoder(ops, DType::kBFloat16); }},
  };
  return list;
}

}  // namespace

int run_check(const Flags& flags) {
  ComputePool& pool = process_compute_pool(check_threads(flags.get_int("threads").value_or(0)));
  const bool json = flags.get_bool("json");
  bool failed = false;
  for (const cpu::Isa isa : {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (!cpu::isa_available(isa)) {
      if (!json) write_stdout(fmt::format("cpu {:<9} NOT RUN: this CPU lacks it\n", cpu::isa_name(isa)));
      continue;
    }
    const auto ops = cpu::make_cpu_ops(pool, isa);
    for (const Check& check : checks()) {
      const Finding finding = check.run(*ops);
      failed |= !finding.empty();
      if (json) {
        const nlohmann::ordered_json line = {
            {"device", "cpu"}, {"isa", cpu::isa_name(isa)}, {"check", check.name}, {"ok", finding.empty()}, {"finding", finding}};
        write_stdout(line.dump() + "\n");
      } else {
        write_stdout(fmt::format("cpu {:<9} {:<17} {}\n", cpu::isa_name(isa), check.name, finding.empty() ? "ok" : "FAILED: " + finding));
      }
      flush_stdout();
    }
  }
  return failed ? 1 : 0;
}

}  // namespace minisgl::cli
