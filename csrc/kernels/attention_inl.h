// Paged attention: online softmax over tiles of 128 keys that are aligned to absolute position,
// read in place from scattered blocks. Included inside a tier's namespace, after
// attention_cache_inl.h and attention_fp8_inl.h.
//
// For the same bits in any batch: a row meets the same tiles in the same order whatever rows share
// its pass; a masked key has a weight of exactly 0; partial results of 512 keys are merged in
// order.

constexpr float kNoMax = -1e30f;  // below any score, and finite: differences stay numbers

// The state of an item: a partial result of the present split, and the total of those before.
struct AttentionState {
  int32_t num_rows;
  int32_t* query;      // passes of [D / numbers in 4 bytes][rows of the pass], in the cache's form
  float* query_scale;  // [rows], int8 only
  int32_t* query_start;  // [rows], int8 only
  float* out;            // [rows][D]
  float* m;              // [rows]
  float* l;              // [rows]
  float* total_out;
  float* total_m;
  float* total_l;
};

static AttentionState carve_state(const AttentionItem& item) {
  AttentionState s;
  s.num_rows = item.num_tokens * item.group;
  const int64_t numbers = static_cast<int64_t>(s.num_rows) * item.kv.head_dim;
  const int64_t padded_rows = (s.num_rows + 15) / 16 * 16;
  float* p = reinterpret_cast<float*>(item.scratch);
  s.out = p, p += numbers;
  s.total_out = p, p += numbers;
  s.m = p, p += padded_rows;
  s.l = p, p += padded_rows;
  s.total_m = p, p += padded_rows;
  s.total_l = p, p += padded_rows;
  s.query_scale = p, p += padded_rows;
  s.query_start = reinterpret_cast<int32_t*>(p), p += padded_rows;
  s.query = reinterpret_cast<int32_t*>(p);
  return s;
}

static inline int rows_of_pass(const AttentionState& s, int first) {
  return s.num_rows - first < kRowsPerPass ? s.num_rows - first : kRowsPerPass;
}

// Queries into the form of the cache: 4 bytes of each row of a pass beside each other.
template <KvFormat F>
static void convert_queries(const AttentionItem& item, const AttentionState& s) {
  const int64_t dim = item.kv.head_dim;
  const int64_t steps = dim * query_element(F) / 4;
  int32_t* form = s.query + s.num_rows * dim;  // one row
  constexpr int kRowsAhead = kRowsPerPass;
  const auto query = [&](int row) {
    return item.query + row / item.group * item.query_stride + row % item.group * dim;
  };
  for (int row = 0; row < s.num_rows; ++row) {
    const float* q = query(row);
    if (row + kRowsAhead < s.num_rows) {
      const float* ahead = query(row + kRowsAhead);
      for (int64_t i = 0; i < dim; i += 16) __builtin_prefetch(ahead + i);
    }
    if constexpr (F == KvFormat::kInt8) {
      int8_t* bytes = reinterpret_cast<int8_t*>(form);
      s.query_scale[row] = quantize_head(q, dim, bytes);
      int32_t sum = 0;
      for (int64_t i = 0; i < dim; ++i) sum += bytes[i];
      s.query_start[row] = (kUnsignedShift - 128) * sum;
    } else if constexpr (by_pairs(F)) {
      for (int64_t i = 0; i < dim; i += 16) {
        store_bf16(reinterpret_cast<uint16_t*>(form) + i, load(q + i));
      }
    } else {
      __builtin_memcpy(form, q, dim * sizeof(float));
    }
    const int first = row / kRowsPerPass * kRowsPerPass, count = rows_of_pass(s, first);
    int32_t* to = s.query + first * steps + (row - first);
    for (int64_t i = 0; i < steps; ++i) to[i * count] = form[i];
  }
}

// Keys outside [lo, hi) count nothing.
OCTAVO_OWN_REGISTERS static void mask_scores(float* scores, int lo, int hi) {
  if (lo <= 0 && hi >= kKeysPerTile) return;
  OCTAVO_UNROLL_TILE
  for (int i = 0; i < kKeysPerTile; i += 16) {
    store(scores + i, keep_lanes(load(scores + i), lo - i, hi - i, -__builtin_inff()));
  }
}

// A row's scores become weights. Returns their sum.
template <KvFormat F, int R>
OCTAVO_TILE_ROW float weights_of_row(const TileBlocks& t, int r, float max, Pass<F, R>& pass) {
  float* const p = pass.scores[r];
  const VecF base = splat(max);
  OCTAVO_UNROLL_TILE
  for (int i = 0; i < kKeysPerTile; i += 16) store(p + i, exp2v(sub(load(p + i), base)));
  return reduce_sum(round_weights<F, R>(t, r, pass));
}

// The softmax over a tile, of all rows of a pass: scores become weights, and the running maxima m
// and sums l move on. First all maxima, then all weights: what one row's reduction waits for, the
// others do meanwhile.
template <KvFormat F, int R>
OCTAVO_OWN_REGISTERS static void softmax_tile(const TileBlocks& t, float* m, float* l,
                                              Pass<F, R>& pass) {
  static_assert(R <= 16, "one factor a lane");
  alignas(64) float new_max[16], factors[16] = {};
  for (int r = 0; r < R; ++r) {
    const float* const p = pass.scores[r];
    VecF largest = load(p);
    OCTAVO_UNROLL
    for (int i = 16; i < kKeysPerTile; i += 16) largest = vmax(largest, load(p + i));
    const float tile_max = reduce_max(largest);
    new_max[r] = tile_max > m[r] ? tile_max : m[r];
    factors[r] = m[r] - new_max[r];
  }
  store(factors, exp2v(load(factors)));
  for (int r = 0; r < R; ++r) {
    m[r] = new_max[r];
    l[r] = l[r] * factors[r] + weights_of_row<F, R>(t, r, new_max[r], pass);
    pass.factor[r] = factors[r];
  }
}

// The kernels of a form of the cache.
template <KvFormat F, int R, int N, bool kFetch>
static inline void attend_keys(const TileBlocks& t, int g0, const KvLayer& kv, Pass<F, R>& pass) {
  if constexpr (F == KvFormat::kFp8) {
    fp8_scores_of_groups<R, N, kFetch>(t, g0, kv, pass);
  } else {
    scores_of_groups<F, R, N, kFetch>(t, g0, kv, pass);
  }
}
template <KvFormat F, int R, int N, bool kFetch>
static inline void attend_values(const TileBlocks& t, const TileBlocks& next, int num_groups,
                                 int v0, const KvLayer& kv, const Pass<F, R>& pass) {
  if constexpr (F == KvFormat::kFp8) {
    fp8_values_of_channels<R, N, kFetch>(t, next, num_groups, v0, kv, pass);
  } else if constexpr (F == KvFormat::kInt8) {
    int8_values_of_channels<R, N, kFetch>(t, next, num_groups, v0, kv, pass);
  } else {
    values_of_channels<F, R, N, kFetch>(t, next, num_groups, v0, kv, pass);
  }
}

// Rows [first, first + R) against one tile. The first pass of an item fetches ahead for all.
template <KvFormat F, int R, bool kFetch>
static void attend_tile(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks& next, int32_t tile_start, int num_groups, int first) {
  const KvLayer& kv = item.kv;
  Pass<F, R> pass;
  pass.query = s.query + first * (kv.head_dim * query_element(F) / 4);
  pass.query_scale = s.query_scale + first;
  pass.query_start = s.query_start + first;
  pass.out = s.out + static_cast<int64_t>(first) * kv.head_dim;
  constexpr int kWide = vectors_per_pass(F, R);
  for (int g = 0; g < num_groups; g += kWide) {
    attend_keys<F, R, kWide, kFetch>(t, g, kv, pass);
  }
  for (int r = 0; r < R; ++r) {
    const int32_t position = item.first_position + (first + r) / item.group;
    const int32_t first_key = item.window > 0 ? position - item.window + 1 : 0;
    mask_scores(pass.scores[r], first_key - tile_start, position + 1 - tile_start);
  }
  softmax_tile<F, R>(t, s.m + first, s.l + first, pass);
  const int vectors = kv.head_dim / 16;
  int v = 0;
  for (; v + kWide <= vectors; v += kWide) {
    attend_values<F, R, kWide, kFetch>(t, next, num_groups, v, kv, pass);
  }
  for (; v < vectors; ++v) attend_values<F, R, 1, kFetch>(t, next, num_groups, v, kv, pass);
}

template <KvFormat F, int R>
static void attend_pass(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks& next, int32_t tile_start, int num_groups, int first) {
  if (first == 0) {
    attend_tile<F, R, true>(item, s, t, next, tile_start, num_groups, first);
  } else {
    attend_tile<F, R, false>(item, s, t, next, tile_start, num_groups, first);
  }
}

// The next R rows, or as many as are left.
template <KvFormat F, int R>
static inline void attend_some(const AttentionItem& item, const AttentionState& s,
                               const TileBlocks& t, const TileBlocks& next, int32_t tile_start,
                               int num_groups, int first) {
  if constexpr (R > 1) {
    if (s.num_rows - first < R) {
      return attend_some<F, R - 1>(item, s, t, next, tile_start, num_groups, first);
    }
  }
  attend_pass<F, R>(item, s, t, next, tile_start, num_groups, first);
}

template <KvFormat F>
static void attend_rows(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks& next, int32_t tile_start, int num_groups) {
  for (int first = 0; first < s.num_rows; first += kRowsPerPass) {
    attend_some<F, kRowsPerPass>(item, s, t, next, tile_start, num_groups, first);
  }
}

static inline void swap(float*& a, float*& b) {
  float* const c = a;
  a = b;
  b = c;
}

OCTAVO_OWN_REGISTERS static void begin_split(const AttentionState& s, int64_t head_dim) {
  for (int64_t i = 0; i < s.num_rows * head_dim; ++i) s.out[i] = 0.0f;
  for (int r = 0; r < s.num_rows; ++r) s.m[r] = kNoMax, s.l[r] = 0.0f;
}

// Adds the partial result of a split to the total; the first one is the total.
static void merge_split(AttentionState& s, bool is_first, int64_t head_dim) {
  if (is_first) {
    swap(s.out, s.total_out);
    swap(s.m, s.total_m);
    swap(s.l, s.total_l);
    return;
  }
  for (int r = 0; r < s.num_rows; ++r) {
    const float m = s.total_m[r] > s.m[r] ? s.total_m[r] : s.m[r];
    const VecF a = exp2v(splat(s.total_m[r] - m)), b = exp2v(splat(s.m[r] - m));
    alignas(64) float fa[16], fb[16];
    store(fa, a);
    store(fb, b);
    s.total_m[r] = m;
    s.total_l[r] = s.total_l[r] * fa[0] + s.l[r] * fb[0];
    float* total = s.total_out + r * head_dim;
    const float* part = s.out + r * head_dim;
    for (int64_t i = 0; i < head_dim; i += 16) {
      store(total + i, fma(load(part + i), b, mul(load(total + i), a)));
    }
  }
}

// 16-token groups of a tile that hold keys below `end`.
static inline int groups_of_tile(int32_t tile, int32_t end) {
  const int32_t keys = end - tile < kKeysPerTile ? end - tile : kKeysPerTile;
  return (keys + 15) / 16;
}

// First key that any of the item's queries sees.
static inline int32_t lowest_key(const AttentionItem& item) {
  return item.window > 0 && item.first_position >= item.window
             ? item.first_position - item.window + 1
             : 0;
}

template <KvFormat F>
static void attend(const AttentionItem& item) {
  AttentionState s = carve_state(item);
  const int64_t head_dim = item.kv.head_dim;
  convert_queries<F>(item, s);

  const int32_t end = item.first_position + item.num_tokens;  // keys 0 .. end - 1
  const int32_t lowest = lowest_key(item);
  const int32_t first_split = lowest / kKeysPerSplit * kKeysPerSplit;
  for (int32_t split = first_split; split < end; split += kKeysPerSplit) {
    begin_split(s, head_dim);
    const int32_t split_end = split + kKeysPerSplit < end ? split + kKeysPerSplit : end;
    const int32_t first_tile = lowest > split ? lowest / kKeysPerTile * kKeysPerTile : split;
    TileBlocks blocks = find_tile(item, first_tile, groups_of_tile(first_tile, end));
    for (int32_t tile = first_tile; tile < split_end; tile += kKeysPerTile) {
      const int32_t after = tile + kKeysPerTile;
      // After the last tile its own keys are fetched again: they are there, so it costs nothing.
      const TileBlocks next =
          after < end ? find_tile(item, after, groups_of_tile(after, end)) : blocks;
      attend_rows<F>(item, s, blocks, next, tile, groups_of_tile(tile, end));
      blocks = next;
    }
    merge_split(s, split == first_split, head_dim);
  }
  for (int r = 0; r < s.num_rows; ++r) {
    const VecF inverse = splat(1.0f / s.total_l[r]);
    float* out = item.out + r / item.group * item.out_stride + r % item.group * head_dim;
    for (int64_t i = 0; i < head_dim; i += 16) {
      store(out + i, mul(load(s.total_out + r * head_dim + i), inverse));
    }
  }
}

static void attention(const AttentionItem& item) {
  switch (item.kv.format) {
    case KvFormat::kF32:
      return attend<KvFormat::kF32>(item);
    case KvFormat::kBf16:
      return attend<KvFormat::kBf16>(item);
    case KvFormat::kInt8:
      return attend<KvFormat::kInt8>(item);
    case KvFormat::kFp8:
      return attend<KvFormat::kFp8>(item);
  }
}
