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
constexpr int64_t kCacheLine = 64;  // bytes
/// Accumulator registers of the GEMM; the rest of the file holds one row of b and a broadcast element of a.
constexpr int kAccumulators = kWidth == 16 ? 24 : 12;

/// The widest power of two of vectors that `rows` rows may hold.
static constexpr int gemm_vectors(int rows) {
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

// out[t], lane j = the 32-bit word t of rows[j] from element `column` on.
#if defined(__AVX512F__)

template <typename T>
MINISGL_INLINE void transpose(const T* const* rows, int64_t column, Words* out) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(rows[i] + column);
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

template <typename T>
MINISGL_INLINE void transpose(const T* const* rows, int64_t column, Words* out) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(rows[i] + column));
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

template <typename T>
MINISGL_INLINE void transpose(const T* const* rows, int64_t column, Words* out) {
  Words r[kWidth];
  for (int i = 0; i < kWidth; ++i) __builtin_memcpy(&r[i], rows[i] + column, sizeof r[i]);
  for (int t = 0; t < kWidth; ++t) out[t] = Words{r[0][t], r[1][t], r[2][t], r[3][t]};
}

#endif

/// Elements of one key or value, prefetched into the second-level cache.
template <typename TKv>
MINISGL_INLINE void prefetch(const TKv* row, int64_t begin, int64_t end) {
  for (int64_t d = begin; d < end; d += kCacheLine / static_cast<int64_t>(sizeof(TKv))) __builtin_prefetch(row + d, 0, 2);
}

MINISGL_INLINE float widen(float x) {
  return x;
}
MINISGL_INLINE float widen(uint16_t x) {
  return float_from_bf16(x);
}

/// keys[d - begin][j] = element d of rows[j], widened, for d in [begin, end) and the 64 rows of a tile. bfloat16 moves in pairs of
/// elements. Fetches `next_rows` ahead.
template <typename TKv>
MINISGL_INLINE void transpose_keys(const TKv* const* rows, const TKv* const* next_rows, int64_t begin, int64_t end, float* keys) {
  constexpr int64_t kPerWord = 4 / sizeof(TKv);
  int64_t d = begin;
  for (; d + kPerWord * kWidth <= end; d += kPerWord * kWidth) {
    for (int64_t j = 0; j < kAttentionTile; j += kWidth) {
      Words words[kWidth];
      transpose(rows + j, d, words);
      float* column = keys + (d - begin) * kAttentionTile + j;
#pragma GCC unroll 16
      for (int t = 0; t < kWidth; ++t) {
        if constexpr (kPerWord == 1) {
          store(column + t * kAttentionTile, V{reinterpret_cast<decltype(V::v)>(words[t])});
        } else {
          store(column + 2 * t * kAttentionTile, V{reinterpret_cast<decltype(V::v)>(words[t] << 16)});
          store(column + (2 * t + 1) * kAttentionTile, V{reinterpret_cast<decltype(V::v)>(words[t] & 0xffff0000u)});
        }
      }
      for (int64_t i = j; i < j + kWidth; ++i) prefetch(next_rows[i], d, d + kPerWord * kWidth);
    }
  }
  for (; d < end; ++d) {
    for (int64_t j = 0; j < kAttentionTile; ++j) keys[(d - begin) * kAttentionTile + j] = widen(rows[j][d]);
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

MINISGL_INLINE bool sees_any(Visible visible) {
  return visible.begin < visible.end;
}

/// Running maximum and sum of one query row.
struct RowState {
  float max;
  float sum;
};

/// For up to kGemmRows rows: turns the scores of one tile into probabilities relative to the new maximum, updates maximum and sum, and
/// scales what each row has summed so far.
MINISGL_INLINE void online_softmax(int64_t rows, const Visible* visible, float scale, float* scores, RowState* state, float* out,
                                   int64_t out_stride, int64_t out_vectors) {
  constexpr int kVectors = static_cast<int>(kAttentionTile) / kWidth;
  constexpr int kLanes = kWidth < 8 ? 8 : kWidth;
  static_assert(kLanes >= kGemmRows);
  float correction[kLanes] = {};
  for (int64_t r = 0; r < rows; ++r) {
    if (!sees_any(visible[r])) continue;
    float* row = scores + r * kAttentionTile;
    // A masked score becomes -inf, whose probability is exactly 0: it changes neither maximum nor sum.
    for (int64_t j = 0; j < visible[r].begin; ++j) row[j] = -__builtin_inff();
    for (int64_t j = visible[r].end; j < kAttentionTile; ++j) row[j] = -__builtin_inff();
    V largest = broadcast(state[r].max);
    for (int v = 0; v < kVectors; ++v) {
      const V score = mul(load(row + v * kWidth), broadcast(scale));
      store(row + v * kWidth, score);
      largest = max(largest, score);
    }
    const float new_max = reduce_max(largest);
    correction[r] = state[r].max - new_max;
    state[r].max = new_max;
  }
  for (int v = 0; v < kLanes; v += kWidth) store(correction + v, exp(load(correction + v)));
  for (int64_t r = 0; r < rows; ++r) {
    if (!sees_any(visible[r])) continue;
    float* row = scores + r * kAttentionTile;
    const V new_max = broadcast(state[r].max);
    V sum = zero();
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const V probability = exp(sub(load(row + v * kWidth), new_max));
      store(row + v * kWidth, probability);
      sum = add(sum, probability);
    }
    state[r].sum = state[r].sum * correction[r] + reduce_add(sum);
    if (correction[r] == 1.0f) continue;
    float* sums = out + r * out_stride;
    for (int64_t v = 0; v < out_vectors; ++v) store(sums + v * kWidth, mul(load(sums + v * kWidth), broadcast(correction[r])));
  }
}

/// out += probabilities * values over the positions [begin, end), for up to kGemmRows rows and only where a row sees the position.
/// `values` starts at position `begin`.
MINISGL_INLINE void add_values(int64_t rows, const Visible* visible, const float* scores, const float* values, int64_t begin, int64_t end,
                               float* out, int64_t stride, int64_t vectors) {
  Visible own[kGemmRows];
  Visible common = {begin, end};
  for (int64_t r = 0; r < rows; ++r) {
    own[r] = {visible[r].begin > begin ? visible[r].begin : begin, visible[r].end < end ? visible[r].end : end};
    common.begin = own[r].begin > common.begin ? own[r].begin : common.begin;
    common.end = own[r].end < common.end ? own[r].end : common.end;
  }
  const auto add_range = [&](int64_t row, int64_t count, int64_t from, int64_t to) {
    if (from >= to) return;
    gemm(count, scores + row * kAttentionTile + from, kAttentionTile, values + (from - begin) * stride, stride, out + row * stride, stride,
         to - from, vectors, true);
  };
  if (!sees_any(common)) {
    for (int64_t r = 0; r < rows; ++r) add_range(r, 1, own[r].begin, own[r].end);
    return;
  }
  // A row's positions in order: before the common range, in it, after it.
  for (int64_t r = 0; r < rows; ++r) add_range(r, 1, own[r].begin, common.begin);
  add_range(0, rows, common.begin, common.end);
  for (int64_t r = 0; r < rows; ++r) add_range(r, 1, common.end, own[r].end);
}

/// rows[j] = the key of position tile + j. Positions outside [first, end), which no query row of the block sees and which may have no page,
/// repeat a key that has one: their scores are masked, whatever they are.
template <typename TKv>
MINISGL_INLINE void find_keys(const AttentionBlock& block, int64_t tile, int64_t first, int64_t end, const TKv** rows) {
  const int64_t begin = first > tile ? first - tile : 0;
  const int64_t stop = end - tile < kAttentionTile ? end - tile : kAttentionTile;
  for (int64_t j = begin; j < stop;) {
    const int64_t page = (tile + j) / block.page_size, offset = (tile + j) % block.page_size;
    const TKv* key = static_cast<const TKv*>(block.keys) + block.pages[page] * block.page_stride + offset * block.head_dim;
    const int64_t run_end = j + block.page_size - offset < stop ? j + block.page_size - offset : stop;
    for (; j < run_end; ++j, key += block.head_dim) rows[j] = key;
  }
  for (int64_t j = 0; j < begin; ++j) rows[j] = rows[begin];
  for (int64_t j = stop; j < kAttentionTile; ++j) rows[j] = rows[begin];
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
  RowState state[kAttentionBlockRows];

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = block.row_begin + r;
    const T* source = static_cast<const T*>(block.q) + row / block.group * block.q_token_stride + row % block.group * block.q_head_stride;
    for (int64_t d = 0; d < head_dim; d += kWidth) {
      store(q + r * stride + d, read(source + d, head_dim - d));
      store(out + r * stride + d, zero());
    }
    state[r] = {-__builtin_inff(), 0.0f};
  }

  const int64_t last_position = block.first_position + (block.row_end - 1) / block.group;
  const int64_t oldest_seen = block.window > 0 ? block.first_position + block.row_begin / block.group + 1 - block.window : 0;
  const int64_t first_seen = oldest_seen > 0 ? oldest_seen : 0;
  // Many rows share a whole widened tile. For a few (decode) it is widened in pieces that stay in the first-level cache; the chains of
  // multiply-adds are the same.
  const int64_t key_piece = rows <= kGemmRows ? 32 : head_dim;
  const int64_t value_piece = rows <= kGemmRows ? 16 : kAttentionTile;
  const TKv* key_rows[kAttentionTile];
  const TKv* next_key_rows[kAttentionTile];
  const int64_t first_tile = first_seen / kAttentionTile * kAttentionTile;
  find_keys(block, first_tile, first_seen, last_position + 1, next_key_rows);
  for (int64_t tile = first_tile; tile <= last_position; tile += kAttentionTile) {
    __builtin_memcpy(key_rows, next_key_rows, sizeof key_rows);
    const bool last = tile + kAttentionTile > last_position;
    if (!last) find_keys(block, tile + kAttentionTile, first_seen, last_position + 1, next_key_rows);
    const int64_t begin = first_seen > tile ? first_seen - tile : 0;
    const int64_t end = last ? last_position + 1 - tile : kAttentionTile;
    Visible visible[kAttentionBlockRows];
    for (int64_t r = 0; r < rows; ++r) visible[r] = visible_positions(block, block.row_begin + r, tile);
    const auto for_each_group = [&](auto&& body) {
      for (int64_t r = 0; r < rows; r += kGemmRows) body(r, rows - r < kGemmRows ? rows - r : kGemmRows);
    };

    for (int64_t d = 0; d < head_dim; d += key_piece) {
      const int64_t d_end = d + key_piece < head_dim ? d + key_piece : head_dim;
      transpose_keys(key_rows, next_key_rows, d, d_end, keys);
      for_each_group([&](int64_t r, int64_t count) {
        // Rows come in the order of their positions, so that the last one sees the most of a tile cut by the causal mask, the first one of
        // a tile cut by the window.
        if (!sees_any(visible[r]) && !sees_any(visible[r + count - 1])) return;
        gemm(count, q + r * stride + d, stride, keys, kAttentionTile, scores + r * kAttentionTile, kAttentionTile, d_end - d,
             kAttentionTile / kWidth, d > 0);
      });
    }
    for_each_group([&](int64_t r, int64_t count) {
      online_softmax(count, visible + r, block.scale, scores + r * kAttentionTile, state + r, out + r * stride, stride, vectors);
    });
    for (int64_t j = begin; j < end; j += value_piece) {
      const int64_t j_end = j + value_piece < end ? j + value_piece : end;
      for (int64_t i = j; i < j_end; ++i) {
        const TKv* value = key_rows[i] + block.value_offset;
        for (int64_t d = 0; d < head_dim; d += kWidth) store(values + (i - j) * stride + d, read(value + d, head_dim - d));
        prefetch(next_key_rows[i] + block.value_offset, 0, head_dim);
      }
      for_each_group([&](int64_t r, int64_t count) {
        add_values(count, visible + r, scores + r * kAttentionTile, values, j, j_end, out + r * stride, stride, vectors);
      });
    }
  }

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = block.row_begin + r;
    T* target = static_cast<T*>(block.out) + row / block.group * block.out_token_stride + row % block.group * head_dim;
    const V sum = broadcast(state[r].sum);
    for (int64_t d = 0; d < head_dim; d += kWidth) write(target + d, div(load(out + r * stride + d), sum), head_dim - d);
  }
}

}  // namespace minisgl::cpu::MINISGL_ISA_NAMESPACE
