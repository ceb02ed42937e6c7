// Kernel source: attention of one block of query rows over paged keys and values, softmax online over tiles of 64 positions.
//
// Both products are the same small GEMM, c += a * b with b row-major: scores = q * transposed keys, out = probabilities * values. Its
// vectors lie along b's columns, so each element of c is one chain of multiply-adds in ascending order of the inner index, however many
// rows share the registers. Hence the bits of a query row do not depend on the block it is in.
//
// A row's chain over values runs over exactly the positions that the row sees. Nothing else is multiplied by zero: a NaN in a masked or
// unwritten slot cannot leak, and a tile cut by the causal mask gives the bits it would give if later keys did not exist.

namespace minisgl::cpu::MINISGL_ISA_NAMESPACE {

constexpr int kGemmRows = 6;
/// Accumulator registers of the GEMM; the rest of the file holds one row of b and a broadcast element of a.
constexpr int kAccumulators = kWidth == 16 ? 24 : 12;

/// The widest power of two of vectors that `rows` rows may hold.
constexpr int gemm_vectors(int rows) {
  int vectors = 8;
  while (rows * vectors > kAccumulators) vectors /= 2;
  return vectors;
}

/// c[kRows, kVectors] (+)= a[kRows, k] * b[k, kVectors]; columns in vectors.
template <int kRows, int kVectors>
MINISGL_INLINE void gemm_tile(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t k,
                              bool accumulate) {
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? load(c + r * c_stride + v * kWidth) : zero();
  }
  for (int64_t i = 0; i < k; ++i) {
    V row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + i * b_stride + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V factor = broadcast(a[r * a_stride + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fmadd(factor, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kWidth, sum[r][v]);
  }
}

template <int kRows, int kVectors>
MINISGL_INLINE void gemm_columns(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t k,
                                 int64_t vectors, bool accumulate) {
  for (; vectors >= kVectors; vectors -= kVectors, b += kVectors * kWidth, c += kVectors * kWidth) {
    gemm_tile<kRows, kVectors>(a, a_stride, b, b_stride, c, c_stride, k, accumulate);
  }
  if constexpr (kVectors > 1) gemm_columns<kRows, kVectors / 2>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
}

/// c[rows, vectors] (+)= a[rows, k] * b[k, vectors] for up to kGemmRows rows.
static void gemm(int64_t rows, const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t k,
                 int64_t vectors, bool accumulate) {
  switch (rows) {
    case 1:
      return gemm_columns<1, gemm_vectors(1)>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
    case 2:
      return gemm_columns<2, gemm_vectors(2)>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
    case 3:
      return gemm_columns<3, gemm_vectors(3)>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
    case 4:
      return gemm_columns<4, gemm_vectors(4)>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
    case 5:
      return gemm_columns<5, gemm_vectors(5)>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
    default:
      return gemm_columns<6, gemm_vectors(6)>(a, a_stride, b, b_stride, c, c_stride, k, vectors, accumulate);
  }
}

// out[t], lane j = the 32-bit word t of rows[j].
#if defined(__AVX512F__)

MINISGL_INLINE void transpose(const void* const* rows, int64_t byte_offset, Words* out) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(static_cast<const char*>(rows[i]) + byte_offset);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  // r[4 q + c]: in each 128-bit part p, column 4 p + c of rows 4 q to 4 q + 3.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(t[i + j]), high = _mm512_castps_pd(t[i + 2 + j]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 even_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88), odd_low = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    const __m512 even_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88), odd_high = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    out[c] = reinterpret_cast<Words>(_mm512_shuffle_f32x4(even_low, even_high, 0x88));
    out[4 + c] = reinterpret_cast<Words>(_mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
    out[8 + c] = reinterpret_cast<Words>(_mm512_shuffle_f32x4(even_low, even_high, 0xdd));
    out[12 + c] = reinterpret_cast<Words>(_mm512_shuffle_f32x4(odd_low, odd_high, 0xdd));
  }
}

#elif defined(__AVX2__)

MINISGL_INLINE void transpose(const void* const* rows, int64_t byte_offset, Words* out) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(static_cast<const char*>(rows[i]) + byte_offset));
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m256d low = _mm256_castps_pd(t[i + j]), high = _mm256_castps_pd(t[i + 2 + j]);
      r[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
      r[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    out[c] = reinterpret_cast<Words>(_mm256_permute2f128_ps(r[c], r[4 + c], 0x20));
    out[4 + c] = reinterpret_cast<Words>(_mm256_permute2f128_ps(r[c], r[4 + c], 0x31));
  }
}

#else

MINISGL_INLINE void transpose(const void* const* rows, int64_t byte_offset, Words* out) {
  Words r[kWidth];
  for (int i = 0; i < kWidth; ++i) __builtin_memcpy(&r[i], static_cast<const char*>(rows[i]) + byte_offset, sizeof r[i]);
  for (int t = 0; t < kWidth; ++t) out[t] = Words{r[0][t], r[1][t], r[2][t], r[3][t]};
}

#endif

/// keys[d][j] = element d of rows[j], widened, for the 64 rows of a tile.
MINISGL_INLINE void transpose_keys(const void* const* rows, int64_t head_dim, const float*, float* keys) {
  for (int64_t j = 0; j < kAttentionTile; j += kWidth) {
    int64_t d = 0;
    for (; d + kWidth <= head_dim; d += kWidth) {
      Words words[kWidth];
      transpose(rows + j, d * 4, words);
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) store(keys + (d + t) * kAttentionTile + j, V{reinterpret_cast<decltype(V::v)>(words[t])});
    }
    for (; d < head_dim; ++d) {
      for (int lane = 0; lane < kWidth; ++lane) keys[d * kAttentionTile + j + lane] = static_cast<const float*>(rows[j + lane])[d];
    }
  }
}

/// The same for bfloat16, moved in pairs of elements.
MINISGL_INLINE void transpose_keys(const void* const* rows, int64_t head_dim, const uint16_t*, float* keys) {
  for (int64_t j = 0; j < kAttentionTile; j += kWidth) {
    int64_t d = 0;
    for (; d + 2 * kWidth <= head_dim; d += 2 * kWidth) {
      Words words[kWidth];
      transpose(rows + j, d * 2, words);
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) {
        float* column = keys + (d + 2 * t) * kAttentionTile + j;
        store(column, V{reinterpret_cast<decltype(V::v)>(words[t] << 16)});
        store(column + kAttentionTile, V{reinterpret_cast<decltype(V::v)>(words[t] & 0xffff0000u)});
      }
    }
    for (; d < head_dim; ++d) {
      for (int lane = 0; lane < kWidth; ++lane) {
        keys[d * kAttentionTile + j + lane] = float_from_bf16(static_cast<const uint16_t*>(rows[j + lane])[d]);
      }
    }
  }
}

/// The positions [begin, end) of a tile, counted from its start, that one query row sees; empty if begin >= end.
struct Visible {
  int64_t begin;
  int64_t end;
};

MINISGL_INLINE Visible visible_positions(const AttentionBlock& block, int64_t row, int64_t tile_begin) {
  const int64_t position = block.first_position + row / block.group;
  const int64_t end = position + 1 - tile_begin;
  const int64_t begin = block.window > 0 ? end - block.window : 0;
  return {begin > 0 ? begin : 0, end < kAttentionTile ? end : kAttentionTile};
}

/// Turns the scores of one tile into probabilities relative to the new maximum, updates the row's maximum and sum and scales what the
/// row has summed so far.
MINISGL_INLINE void online_softmax(float* scores, Visible visible, float scale, float* row_max, float* row_sum, float* out,
                                   int64_t out_vectors) {
  // A masked score becomes -inf, whose probability is exactly 0: it changes neither maximum nor sum.
  for (int64_t j = 0; j < visible.begin; ++j) scores[j] = -__builtin_inff();
  for (int64_t j = visible.end; j < kAttentionTile; ++j) scores[j] = -__builtin_inff();
  constexpr int kVectors = static_cast<int>(kAttentionTile) / kWidth;
  V score[kVectors];
  V largest = broadcast(*row_max);
  for (int v = 0; v < kVectors; ++v) {
    score[v] = mul(load(scores + v * kWidth), broadcast(scale));
    largest = max(largest, score[v]);
  }
  const float new_max = reduce_max(largest);
  V sum = zero();
  for (int v = 0; v < kVectors; ++v) {
    const V probability = exp(sub(score[v], broadcast(new_max)));
    store(scores + v * kWidth, probability);
    sum = add(sum, probability);
  }
  const V correction = exp(broadcast(*row_max - new_max));
  float lanes[kWidth];
  store(lanes, correction);
  *row_sum = *row_sum * lanes[0] + reduce_add(sum);
  *row_max = new_max;
  if (lanes[0] != 1.0f) {
    for (int64_t v = 0; v < out_vectors; ++v) store(out + v * kWidth, mul(load(out + v * kWidth), correction));
  }
}

/// out += probabilities * values for up to kGemmRows rows, each over its own visible positions.
MINISGL_INLINE void add_values(int64_t rows, const Visible* visible, const float* scores, const float* values, int64_t value_stride,
                               float* out, int64_t vectors) {
  Visible common = visible[0];
  for (int64_t r = 1; r < rows; ++r) {
    common.begin = visible[r].begin > common.begin ? visible[r].begin : common.begin;
    common.end = visible[r].end < common.end ? visible[r].end : common.end;
  }
  const auto add_range = [&](int64_t row, int64_t count, int64_t begin, int64_t end) {
    if (begin >= end) return;
    gemm(count, scores + row * kAttentionTile + begin, kAttentionTile, values + begin * value_stride, value_stride,
         out + row * value_stride, value_stride, end - begin, vectors, true);
  };
  if (common.begin >= common.end) {
    for (int64_t r = 0; r < rows; ++r) add_range(r, 1, visible[r].begin, visible[r].end);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) add_range(r, 1, visible[r].begin, common.begin);
  add_range(0, rows, common.begin, common.end);
  for (int64_t r = 0; r < rows; ++r) add_range(r, 1, common.end, visible[r].end);
}

/// T: type of queries and output, TKv: of keys and values; uint16_t is bfloat16.
template <typename T, typename TKv>
static void attention(const AttentionBlock& block, float* scratch) {
  const int64_t head_dim = block.head_dim;
  const int64_t stride = (head_dim + 15) / 16 * 16;
  const int64_t vectors = (head_dim + kWidth - 1) / kWidth;
  const int64_t rows = block.row_end - block.row_begin;
  float* const keys = scratch;
  float* const values = keys + kAttentionTile * stride;
  float* const q = values + kAttentionTile * stride;
  float* const out = q + kAttentionBlockRows * stride;
  float* const scores = out + kAttentionBlockRows * stride;
  float* const row_max = scores + kAttentionBlockRows * kAttentionTile;
  float* const row_sum = row_max + kAttentionBlockRows;

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = block.row_begin + r;
    const T* source = static_cast<const T*>(block.q) + row / block.group * block.q_token_stride + row % block.group * block.q_head_stride;
    for (int64_t d = 0; d < head_dim; d += kWidth) {
      store(q + r * stride + d, read(source + d, head_dim - d));
      store(out + r * stride + d, zero());
    }
    row_max[r] = -__builtin_inff();
    row_sum[r] = 0.0f;
  }

  const int64_t last_position = block.first_position + (block.row_end - 1) / block.group;
  const int64_t oldest_seen = block.window > 0 ? block.first_position + block.row_begin / block.group + 1 - block.window : 0;
  const int64_t first_seen = oldest_seen > 0 ? oldest_seen : 0;
  for (int64_t tile = first_seen / kAttentionTile * kAttentionTile; tile <= last_position; tile += kAttentionTile) {
    const int64_t begin = first_seen > tile ? first_seen : tile;
    const int64_t end = last_position + 1 < tile + kAttentionTile ? last_position + 1 : tile + kAttentionTile;
    const void* key_rows[kAttentionTile];
    for (int64_t position = begin, j = begin - tile; position < end;) {
      const int64_t offset = position % block.page_size;
      const TKv* key =
          static_cast<const TKv*>(block.keys) + block.pages[position / block.page_size] * block.page_stride + offset * head_dim;
      const int64_t in_page = block.page_size - offset < end - position ? block.page_size - offset : end - position;
      for (int64_t i = 0; i < in_page; ++i, ++j, key += head_dim) {
        key_rows[j] = key;
        const TKv* value = key + block.value_offset;
        for (int64_t d = 0; d < head_dim; d += kWidth) store(values + j * stride + d, read(value + d, head_dim - d));
      }
      position += in_page;
    }
    // No query row sees the other columns; their scores are masked, whatever they are.
    for (int64_t j = 0; j < begin - tile; ++j) key_rows[j] = key_rows[begin - tile];
    for (int64_t j = end - tile; j < kAttentionTile; ++j) key_rows[j] = key_rows[begin - tile];
    transpose_keys(key_rows, head_dim, static_cast<const TKv*>(nullptr), keys);

    for (int64_t r = 0; r < rows; r += kGemmRows) {
      const int64_t count = rows - r < kGemmRows ? rows - r : kGemmRows;
      Visible visible[kGemmRows];
      bool any = false;
      for (int64_t i = 0; i < count; ++i) {
        visible[i] = visible_positions(block, block.row_begin + r + i, tile);
        any = any || visible[i].begin < visible[i].end;
      }
      if (!any) continue;
      gemm(count, q + r * stride, stride, keys, kAttentionTile, scores + r * kAttentionTile, kAttentionTile, head_dim,
           kAttentionTile / kWidth, false);
      for (int64_t i = r; i < r + count; ++i) {
        if (visible[i - r].begin >= visible[i - r].end) continue;
        online_softmax(scores + i * kAttentionTile, visible[i - r], block.scale, row_max + i, row_sum + i, out + i * stride, vectors);
      }
      add_values(count, visible, scores + r * kAttentionTile, values, stride, out + r * stride, vectors);
    }
  }

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = block.row_begin + r;
    T* target = static_cast<T*>(block.out) + row / block.group * block.out_token_stride + row % block.group * head_dim;
    const V sum = broadcast(row_sum[r]);
    for (int64_t d = 0; d < head_dim; d += kWidth) write(target + d, div(load(out + r * stride + d), sum), head_dim - d);
  }
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
