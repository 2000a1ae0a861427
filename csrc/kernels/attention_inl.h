// Paged attention: online softmax over tiles of 128 keys that are aligned to absolute position,
// read in place from scattered blocks. Included inside a tier's namespace.
//
// For the same bits in any batch: a row meets the same tiles in the same order whatever rows share
// its pass; a masked key has a weight of exactly 0; partial results of 512 keys are merged in
// order.

constexpr int kGroupsPerTile = kKeysPerTile / 16;
constexpr int kRowsPerPass = 6;   // 6 rows x 2 vectors: 12 chains of dot products
constexpr float kNoMax = -1e30f;  // below any score, and finite: differences stay numbers

// Where the 16-token groups of a tile lie. Groups beyond the context repeat the first: they are
// masked.
struct TileBlocks {
  const uint8_t* keys[kGroupsPerTile];
  const uint8_t* values[kGroupsPerTile];
};

// Blocks lie anywhere, which the hardware's own prefetching cannot follow: while a tile's scores
// are computed its values are fetched, and while its values are summed the next tile's keys.
static inline void fetch(const uint8_t* p) { __builtin_prefetch(p, 0, 3); }

static inline int64_t kv_element(const KvLayer& kv) { return kv.bf16 ? 2 : 4; }

static inline uint8_t* kv_keys(const KvLayer& kv, int32_t block, int32_t kv_head) {
  return kv.base + block * kv.block_stride + kv_head * kv.head_stride;
}
static inline uint8_t* kv_values(const KvLayer& kv, int32_t block, int32_t kv_head) {
  return kv_keys(kv, block, kv_head) + kv.head_dim * kv.block_size * kv_element(kv);
}

static inline TileBlocks find_tile(const AttentionItem& item, int32_t tile_start, int num_groups) {
  TileBlocks t;
  const KvLayer& kv = item.kv;
  for (int g = 0; g < kGroupsPerTile; ++g) {
    const int32_t position = tile_start + (g < num_groups ? g : 0) * 16;
    const int32_t block = item.block_table[position / kv.block_size];
    const int64_t slot = position % kv.block_size;
    t.keys[g] = kv_keys(kv, block, item.kv_head) + slot * 4;  // 4 bytes a token: a pair, or a float
    t.values[g] = kv_values(kv, block, item.kv_head) + slot * kv.head_dim * kv_element(kv);
  }
  return t;
}

// scores[r][g * 16 ..] for N groups from g0.
template <bool kBf16, int R, int N>
static inline void scores_of_groups(const TileBlocks& t, int g0, const void* const* q,
                                    const KvLayer& kv, bool first_pass,
                                    float (*scores)[kKeysPerTile]) {
  VecF acc[R][N];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = zero();
  }
  const int64_t stride = kv.block_size * 4;
  const int steps = kBf16 ? kv.head_dim / 2 : kv.head_dim;
  for (int i = 0; i < steps; ++i) {
    if (first_pass) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) fetch(t.values[g0 + n] + i * kLine);
    }
    if constexpr (kBf16) {
      Pairs k[N];
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) k[n] = load_pairs(t.keys[g0 + n] + i * stride);
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const Pairs x = splat_pair(static_cast<const uint16_t*>(q[r]) + 2 * i);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = dot_bf16(acc[r][n], k[n], x);
      }
    } else {
      VecF k[N];
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) {
        k[n] = load(reinterpret_cast<const float*>(t.keys[g0 + n] + i * stride));
      }
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const VecF x = splat(static_cast<const float*>(q[r])[i]);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = fma(k[n], x, acc[r][n]);
      }
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) store(scores[r] + (g0 + n) * 16, acc[r][n]);
  }
}

// One row's softmax over a tile: scores become weights (float, or bfloat16 in `weights16`), and the
// running maximum m and sum l move on. Returns the factor for what was summed before.
template <bool kBf16>
static inline float softmax_tile(float* scores, uint16_t* weights16, int num_groups, int lo, int hi,
                                 float* m, float* l) {
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
  VecF sum = zero();
  for (int g = 0; g < num_groups; ++g) {
    VecF p = exp2v(sub(load(scores + g * 16), splat(new_max)));
    if constexpr (kBf16) {
      store_bf16(weights16 + g * 16, p);
      p = load_bf16(weights16 + g * 16);  // the sum is of the weights that are used
    } else {
      store(scores + g * 16, p);
    }
    sum = add(sum, p);
  }
  *m = new_max;
  *l = *l * factor[0] + reduce_sum(sum);
  return factor[0];
}

// out[r][v * 16 ..] = out * factor[r] + weights[r] * values, for N vectors of channels from v0.
template <bool kBf16, int R, int N>
static inline void values_of_channels(const TileBlocks& t, int num_groups, int v0,
                                      const KvLayer& kv, const void* const* weights,
                                      const TileBlocks* next, const float* factor,
                                      float* const* out) {
  VecF acc[R][N];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) {
      acc[r][n] = mul(load(out[r] + (v0 + n) * 16), splat(factor[r]));
    }
  }
  const int64_t stride = kv.head_dim * 4;  // a pair of tokens, or one token in float
  constexpr int kSteps = kBf16 ? 8 : 16;
  for (int g = 0; g < num_groups; ++g) {
    const uint8_t* base = t.values[g] + v0 * kLine;
    for (int i = 0; i < kSteps; ++i) {
      if (next != nullptr) {
        const uint8_t* keys = next->keys[g] + (i * (kv.head_dim / 16) + v0) * (kv.block_size * 4);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) fetch(keys + n * (kv.block_size * 4));
      }
      if constexpr (kBf16) {
        Pairs v[N];
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) v[n] = load_pairs(base + i * stride + n * kLine);
        OCTAVO_UNROLL
        for (int r = 0; r < R; ++r) {
          const Pairs p = splat_pair(static_cast<const uint16_t*>(weights[r]) + g * 16 + 2 * i);
          OCTAVO_UNROLL
          for (int n = 0; n < N; ++n) acc[r][n] = dot_bf16(acc[r][n], v[n], p);
        }
      } else {
        VecF v[N];
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) {
          v[n] = load(reinterpret_cast<const float*>(base + i * stride + n * kLine));
        }
        OCTAVO_UNROLL
        for (int r = 0; r < R; ++r) {
          const VecF p = splat(static_cast<const float*>(weights[r])[g * 16 + i]);
          OCTAVO_UNROLL
          for (int n = 0; n < N; ++n) acc[r][n] = fma(v[n], p, acc[r][n]);
        }
      }
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) store(out[r] + (v0 + n) * 16, acc[r][n]);
  }
}

// The state of an item: a partial result of the present split, and the total of those before.
struct AttentionState {
  int32_t num_rows;
  uint16_t* q16;  // [rows][D], bfloat16 cache only
  float* out;     // [rows][D]
  float* m;       // [rows]
  float* l;       // [rows]
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
  s.q16 = reinterpret_cast<uint16_t*>(p);
  return s;
}

// Rows [first, first + R) against one tile.
template <bool kBf16, int R>
static void attend_tile(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks* next, int32_t tile_start, int num_groups, int first) {
  const KvLayer& kv = item.kv;
  alignas(64) float scores[R][kKeysPerTile];
  alignas(64) uint16_t weights16[R][kKeysPerTile];
  const void* q[R];
  const void* weights[R];
  float* out[R];
  float factor[R];
  for (int r = 0; r < R; ++r) {
    const int row = first + r, token = row / item.group, head = row % item.group;
    q[r] = kBf16 ? static_cast<const void*>(s.q16 + static_cast<int64_t>(row) * kv.head_dim)
                 : item.query + token * item.query_stride + head * kv.head_dim;
    weights[r] = kBf16 ? static_cast<const void*>(weights16[r]) : scores[r];
    out[r] = s.out + static_cast<int64_t>(row) * kv.head_dim;
  }
  constexpr int kWide = R <= 3 ? 4 : 2;
  for (int g = 0; g < num_groups; g += kWide) {
    scores_of_groups<kBf16, R, kWide>(t, g, q, kv, first == 0, scores);
  }
  for (int r = 0; r < R; ++r) {
    const int row = first + r;
    const int32_t position = item.first_position + row / item.group;
    const int32_t first_key = item.window > 0 ? position - item.window + 1 : 0;
    factor[r] = softmax_tile<kBf16>(scores[r], weights16[r], num_groups, first_key - tile_start,
                                    position + 1 - tile_start, s.m + row, s.l + row);
  }
  const int vectors = kv.head_dim / 16;
  if (first != 0) next = nullptr;
  int v = 0;
  for (; v + kWide <= vectors; v += kWide) {
    values_of_channels<kBf16, R, kWide>(t, num_groups, v, kv, weights, next, factor, out);
  }
  for (; v < vectors; ++v) {
    values_of_channels<kBf16, R, 1>(t, num_groups, v, kv, weights, next, factor, out);
  }
}

template <bool kBf16>
static void attend_rows(const AttentionItem& item, const AttentionState& s, const TileBlocks& t,
                        const TileBlocks* next, int32_t tile_start, int num_groups) {
  for (int first = 0; first < s.num_rows; first += kRowsPerPass) {
    switch (s.num_rows - first) {
      case 1:
        attend_tile<kBf16, 1>(item, s, t, next, tile_start, num_groups, first);
        break;
      case 2:
        attend_tile<kBf16, 2>(item, s, t, next, tile_start, num_groups, first);
        break;
      case 3:
        attend_tile<kBf16, 3>(item, s, t, next, tile_start, num_groups, first);
        break;
      case 4:
        attend_tile<kBf16, 4>(item, s, t, next, tile_start, num_groups, first);
        break;
      case 5:
        attend_tile<kBf16, 5>(item, s, t, next, tile_start, num_groups, first);
        break;
      default:
        attend_tile<kBf16, 6>(item, s, t, next, tile_start, num_groups, first);
        break;
    }
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

// 16-token groups of a tile that hold keys below `end`.
static inline int groups_of_tile(int32_t tile, int32_t end) {
  const int32_t keys = end - tile < kKeysPerTile ? end - tile : kKeysPerTile;
  return (keys + 15) / 16;
}

template <bool kBf16>
static void attend(const AttentionItem& item) {
  const AttentionState s = carve_state(item);
  const int64_t head_dim = item.kv.head_dim;
  if (kBf16) {
    for (int r = 0; r < s.num_rows; ++r) {
      const float* q = item.query + r / item.group * item.query_stride + r % item.group * head_dim;
      for (int64_t i = 0; i < head_dim; i += 16) store_bf16(s.q16 + r * head_dim + i, load(q + i));
    }
  }
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
      attend_rows<kBf16>(item, s, blocks, after < end ? &next : nullptr, tile,
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
  if (item.kv.bf16) {
    attend<true>(item);
  } else {
    attend<false>(item);
  }
}

static void write_kv(const KvLayer& kv, int32_t block, int32_t slot, int32_t kv_head,
                     const float* key, const float* value) {
  uint8_t* keys = kv_keys(kv, block, kv_head);
  uint8_t* values = kv_values(kv, block, kv_head);
  const int64_t d = kv.head_dim, b = kv.block_size;
  if (!kv.bf16) {
    float* k = reinterpret_cast<float*>(keys);
    float* v = reinterpret_cast<float*>(values) + slot * d;
    for (int64_t i = 0; i < d; ++i) k[i * b + slot] = key[i];
    for (int64_t i = 0; i < d; i += 16) store(v + i, load(value + i));
    return;
  }
  uint16_t* k = reinterpret_cast<uint16_t*>(keys);
  uint16_t* v = reinterpret_cast<uint16_t*>(values) + slot / 2 * 2 * d + slot % 2;
  for (int64_t i = 0; i < d; i += 16) {
    uint16_t k16[16], v16[16];
    store_bf16(k16, load(key + i));
    store_bf16(v16, load(value + i));
    for (int64_t j = 0; j < 16; j += 2) {
      k[(i + j) * b + 2 * slot] = k16[j];
      k[(i + j) * b + 2 * slot + 1] = k16[j + 1];
    }
    for (int64_t j = 0; j < 16; ++j) v[2 * (i + j)] = v16[j];
  }
}
