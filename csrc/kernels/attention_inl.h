// Paged attention: online softmax over tiles of 128 keys that are aligned to absolute position,
// read in place from scattered blocks. Included inside a tier's namespace, after
// attention_cache_inl.h.
//
// For the same bits in any batch: a row meets the same tiles in the same order whatever rows share
// its pass; a masked key has a weight of exactly 0; partial results of 512 keys are merged in
// order.

constexpr float kNoMax = -1e30f;  // below any score, and finite: differences stay numbers

// One row's softmax over a tile: its scores become weights, and the running maximum m and sum l
// move on.
template <KvFormat F, int R>
static inline void softmax_tile(const TileBlocks& t, int num_groups, int lo, int hi, int r,
                                float* m, float* l, Pass<F, R>& pass) {
  float* scores = pass.scores[r];
  VecF largest = splat(-__builtin_inff());
  for (int g = 0; g < num_groups; ++g) {
    VecF s = load(scores + g * 16);
    if (g * 16 < lo || g * 16 + 16 > hi) {
      s = keep_lanes(s, lo - g * 16, hi - g * 16, -__builtin_inff());
      store(scores + g * 16, s);
    }
    largest = vmax(largest, s);
  }
  const float tile_max = reduce_max(largest);
  const float new_max = tile_max > *m ? tile_max : *m;
  alignas(64) float factor[16];
  store(factor, exp2v(splat(*m - new_max)));
  for (int g = 0; g < num_groups; ++g) {
    store(scores + g * 16, exp2v(sub(load(scores + g * 16), splat(new_max))));
  }
  *m = new_max;
  *l = *l * factor[0] + round_weights<F, R>(t, num_groups, r, pass);
  pass.factor[r] = factor[0];
}

// The state of an item: a partial result of the present split, and the total of those before.
struct AttentionState {
  int32_t num_rows;
  uint16_t* q_bf16;  // [rows][D] queries in the cache's form
  int8_t* q_int8;    // [rows][D]
  float* q_scale;    // [rows], int8 only
  float* out;        // [rows][D]
  float* m;          // [rows]
  float* l;          // [rows]
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
  s.q_scale = p, p += padded_rows;
  s.q_bf16 = reinterpret_cast<uint16_t*>(p);  // one of the two
  s.q_int8 = reinterpret_cast<int8_t*>(p);
  return s;
}

// The query of a row for a pass.
template <KvFormat F, int R>
static inline void set_query(const AttentionItem& item, const AttentionState& s, int row, int r,
                             Pass<F, R>& pass) {
  const int64_t dim = item.kv.head_dim;
  if constexpr (F == KvFormat::kF32) {
    pass.query_f32[r] = item.query + row / item.group * item.query_stride + row % item.group * dim;
  } else if constexpr (by_pairs(F)) {
    pass.query_bf16[r] = s.q_bf16 + row * dim;
  } else {
    pass.query_q[r] = s.q_int8 + row * dim;
    pass.query_scale[r] = s.q_scale[row];
    int32_t sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += pass.query_q[r][i];
    pass.query_start[r] = -128 * sum;
  }
}

// Rows [first, first + R) against one tile. The first pass of an item fetches ahead for all.
template <KvFormat F, int R>
static void attend_tile(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks* next, int32_t tile_start, int num_groups, int first) {
  const KvLayer& kv = item.kv;
  Pass<F, R> pass;
  for (int r = 0; r < R; ++r) {
    set_query<F, R>(item, s, first + r, r, pass);
    pass.out[r] = s.out + static_cast<int64_t>(first + r) * kv.head_dim;
  }
  constexpr int kWide = vectors_per_pass(F, R);
  for (int g = 0; g < num_groups; g += kWide) {
    scores_of_groups<F, R, kWide>(t, g, kv, first == 0, pass);
  }
  for (int r = 0; r < R; ++r) {
    const int row = first + r;
    const int32_t position = item.first_position + row / item.group;
    const int32_t first_key = item.window > 0 ? position - item.window + 1 : 0;
    softmax_tile<F, R>(t, num_groups, first_key - tile_start, position + 1 - tile_start, r,
                       s.m + row, s.l + row, pass);
  }
  const int vectors = kv.head_dim / 16;
  if (first != 0) next = nullptr;
  int v = 0;
  for (; v + kWide <= vectors; v += kWide) {
    values_of_channels<F, R, kWide>(t, next, num_groups, v, kv, pass);
  }
  for (; v < vectors; ++v) values_of_channels<F, R, 1>(t, next, num_groups, v, kv, pass);
}

// The next R rows, or as many as are left.
template <KvFormat F, int R>
static inline void attend_some(const AttentionItem& item, const AttentionState& s,
                               const TileBlocks& t, const TileBlocks* next, int32_t tile_start,
                               int num_groups, int first) {
  if constexpr (R > 1) {
    if (s.num_rows - first < R) {
      return attend_some<F, R - 1>(item, s, t, next, tile_start, num_groups, first);
    }
  }
  attend_tile<F, R>(item, s, t, next, tile_start, num_groups, first);
}

template <KvFormat F>
static void attend_rows(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks* next, int32_t tile_start, int num_groups) {
  for (int first = 0; first < s.num_rows; first += kRowsPerPass) {
    attend_some<F, kRowsPerPass>(item, s, t, next, tile_start, num_groups, first);
  }
}

static void begin_split(const AttentionState& s, int64_t head_dim) {
  for (int64_t i = 0; i < s.num_rows * head_dim; ++i) s.out[i] = 0.0f;
  for (int r = 0; r < s.num_rows; ++r) s.m[r] = kNoMax, s.l[r] = 0.0f;
}

// Adds the partial result of a split to the total.
static void merge_split(const AttentionState& s, int64_t head_dim) {
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

// Queries into the form of the cache.
template <KvFormat F>
static void convert_queries(const AttentionItem& item, const AttentionState& s) {
  const int64_t dim = item.kv.head_dim;
  for (int r = 0; r < s.num_rows; ++r) {
    const float* q = item.query + r / item.group * item.query_stride + r % item.group * dim;
    if constexpr (by_pairs(F)) {
      for (int64_t i = 0; i < dim; i += 16) store_bf16(s.q_bf16 + r * dim + i, load(q + i));
    } else if constexpr (F == KvFormat::kInt8) {
      s.q_scale[r] = quantize_head(q, dim, s.q_int8 + r * dim);
    }
  }
}

// 16-token groups of a tile that hold keys below `end`.
static inline int groups_of_tile(int32_t tile, int32_t end) {
  const int32_t keys = end - tile < kKeysPerTile ? end - tile : kKeysPerTile;
  return (keys + 15) / 16;
}

template <KvFormat F>
static void attend(const AttentionItem& item) {
  const AttentionState s = carve_state(item);
  const int64_t head_dim = item.kv.head_dim;
  convert_queries<F>(item, s);
  for (int64_t i = 0; i < s.num_rows * head_dim; ++i) s.total_out[i] = 0.0f;
  for (int r = 0; r < s.num_rows; ++r) s.total_m[r] = kNoMax, s.total_l[r] = 0.0f;

  const int32_t end = item.first_position + item.num_tokens;  // keys 0 .. end - 1
  const int32_t lowest = item.window > 0 && item.first_position >= item.window
                             ? item.first_position - item.window + 1
                             : 0;
  for (int32_t split = lowest / kKeysPerSplit * kKeysPerSplit; split < end;
       split += kKeysPerSplit) {
    begin_split(s, head_dim);
    const int32_t split_end = split + kKeysPerSplit < end ? split + kKeysPerSplit : end;
    const int32_t first_tile = lowest > split ? lowest / kKeysPerTile * kKeysPerTile : split;
    TileBlocks blocks = find_tile(item, first_tile, groups_of_tile(first_tile, end));
    for (int32_t tile = first_tile; tile < split_end; tile += kKeysPerTile) {
      const int32_t after = tile + kKeysPerTile;
      TileBlocks next = {};
      if (after < end) next = find_tile(item, after, groups_of_tile(after, end));
      attend_rows<F>(item, s, blocks, after < end ? &next : nullptr, tile,
                     groups_of_tile(tile, end));
      blocks = next;
    }
    merge_split(s, head_dim);
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
