// The forms of the cache: how a block is laid out, written, and multiplied with. Included
// inside a tier's namespace, before attention_inl.h.
//
// A block of one KV head holds its keys, then its values. 16 tokens of keys at one step of D are a
// line, and so are 16 channels of values at one step of tokens:
//   float32   keys [D][B]          values [B][D]
//   bfloat16  keys [D/2][B][2]     values [B/2][D][2]
//   int8      keys [D/4][B][4]     values [B/4][D][4]     then a float scale for each token's key,
//   and value
//   fp8       keys [D/4][B][4]     values [B/4][D][4]     in attention_fp8_inl.h
// Keys are kept as q + 128: the dot product instructions take unsigned by signed bytes.

constexpr int kGroupsPerTile = kKeysPerTile / 16;

static inline int64_t kv_element(KvFormat format) {
  return format == KvFormat::kF32 ? 4 : format == KvFormat::kBf16 ? 2 : 1;
}
static inline uint8_t* kv_keys(const KvLayer& kv, int32_t block, int32_t kv_head) {
  return kv.base + block * kv.block_stride + kv_head * kv.head_stride;
}
static inline int64_t kv_values_offset(const KvLayer& kv) {
  return int64_t{kv.head_dim} * kv.block_size * kv_element(kv.format);
}

// Where the 16-token groups of a tile lie. Groups beyond the context repeat the first: they are
// masked.
struct TileBlocks {
  const uint8_t* keys[kGroupsPerTile];
  const uint8_t* values[kGroupsPerTile];
  const float* key_scales[kGroupsPerTile];  // int8 only
  const float* value_scales[kGroupsPerTile];
};

static inline TileBlocks find_tile(const AttentionItem& item, int32_t tile_start, int num_groups) {
  TileBlocks t;
  const KvLayer& kv = item.kv;
  const int64_t values = kv_values_offset(kv);
  for (int g = 0; g < kGroupsPerTile; ++g) {
    const int32_t position = tile_start + (g < num_groups ? g : 0) * 16;
    const uint8_t* block = kv_keys(kv, item.block_table[position / kv.block_size], item.kv_head);
    const int64_t slot = position % kv.block_size;
    t.keys[g] = block + slot * 4;  // 4 bytes a token: a quad, a pair, or a float
    t.values[g] = block + values + slot * kv.head_dim * kv_element(kv.format);
    const float* scales = reinterpret_cast<const float*>(block + 2 * values) + slot;
    t.key_scales[g] = scales;
    t.value_scales[g] = scales + kv.block_size;
  }
  return t;
}

// Whether dot products are of bfloat16 pairs.
constexpr bool by_pairs(KvFormat f) { return f == KvFormat::kBf16 || f == KvFormat::kFp8; }

static inline void fetch(const uint8_t* p) { __builtin_prefetch(p, 0, 3); }

// What a pass of R rows multiplies with a tile. `query` rows are in the cache's own form; weights
// are what softmax made of the scores, in the form that the values take.
template <KvFormat F, int R>
struct Pass {
  const float* query_f32[R];
  const uint16_t* query_bf16[R];
  const int8_t* query_q[R];
  float query_scale[R];    // int8: of the row
  int32_t query_start[R];  // int8: -128 * sum of q, for keys that are kept as q + 128
  alignas(64) float scores[R][kKeysPerTile];  // then the weights, in float
  alignas(64) uint16_t weights_bf16[R][kKeysPerTile];
  alignas(64) uint8_t weights_high[R][kKeysPerTile];  // int8: weights in 16 bits, in two planes
  alignas(64) uint8_t weights_low[R][kKeysPerTile];
  float weight_unit[R];  // int8: what 1 in 16 bits stands for
  float factor[R];       // for what was summed before this tile
  float* out[R];
};

// The two below, of FP8.
template <int R, int N>
static inline void fp8_scores(const TileBlocks& t, int g0, const KvLayer& kv, bool fetch_values,
                              Pass<KvFormat::kFp8, R>& pass);
template <int R, int N>
static inline void fp8_values(const TileBlocks& t, const TileBlocks* next, int num_groups, int v0,
                              const KvLayer& kv, const Pass<KvFormat::kFp8, R>& pass);
static void write_kv_fp8(const KvLayer& kv, uint8_t* block, int64_t slot, const float* key,
                         const float* value);

// scores[r][g * 16 ..] for N groups from g0. While keys are read, the tile's values are fetched.
template <KvFormat F, int R, int N>
OCTAVO_OWN_REGISTERS static void scores_of_groups(const TileBlocks& t, int g0, const KvLayer& kv,
                                    bool fetch_values, Pass<F, R>& pass) {
  const int64_t stride = kv.block_size * 4;
  const int steps = static_cast<int>(kv.head_dim * kv_element(F) / 4);
  if constexpr (F == KvFormat::kFp8) {
    fp8_scores<R, N>(t, g0, kv, fetch_values, pass);
  } else if constexpr (F == KvFormat::kInt8) {
    VecI acc[R][N];
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = splat_int(pass.query_start[r]);
    }
    for (int i = 0; i < steps; ++i) {
      Bytes k[N];
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) {
        if (fetch_values) fetch(t.values[g0 + n] + i * kLine);
        k[n] = load_bytes(t.keys[g0 + n] + i * stride);
      }
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const Quad x = splat_quad(pass.query_q[r] + 4 * i);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = dot_u8s8<false>(acc[r][n], k[n], x);
      }
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) {
        const VecF scale = mul(load(t.key_scales[g0 + n]), splat(pass.query_scale[r]));
        store(pass.scores[r] + (g0 + n) * 16, mul(to_float(acc[r][n]), scale));
      }
    }
  } else {
    VecF acc[R][N];
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = zero();
    }
    for (int i = 0; i < steps; ++i) {
      if (fetch_values) {
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) fetch(t.values[g0 + n] + i * kLine);
      }
      if constexpr (F == KvFormat::kBf16) {
        Pairs k[N];
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) k[n] = load_pairs(t.keys[g0 + n] + i * stride);
        OCTAVO_UNROLL
        for (int r = 0; r < R; ++r) {
          const Pairs x = splat_pair(pass.query_bf16[r] + 2 * i);
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
          const VecF x = splat(pass.query_f32[r][i]);
          OCTAVO_UNROLL
          for (int n = 0; n < N; ++n) acc[r][n] = fma(k[n], x, acc[r][n]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) store(pass.scores[r] + (g0 + n) * 16, acc[r][n]);
    }
  }
}

// Weights of row r (in pass.scores) into the form that the values take; returns their sum, of what
// is used.
template <KvFormat F, int R>
static inline float round_weights(const TileBlocks& t, int num_groups, int r, Pass<F, R>& pass) {
  VecF sum = zero();
  if constexpr (F == KvFormat::kInt8) {
    // Times the token's scale, in units of the largest / 65535: exact in integers, twice 8 bits.
    VecF largest = zero();
    for (int g = 0; g < num_groups; ++g) {
      const VecF p = load(pass.scores[r] + g * 16);
      sum = add(sum, p);
      const VecF scaled = keep_above(mul(p, load(t.value_scales[g])), p, 0.0f);
      store(pass.scores[r] + g * 16, scaled);
      largest = vmax(largest, scaled);
    }
    const float top = reduce_max(largest);
    pass.weight_unit[r] = top / 65535.0f;
    const VecF inverse = splat(top > 0.0f ? 65535.0f / top : 0.0f);
    for (int g = 0; g < num_groups; ++g) {
      const VecI w = to_int(mul(load(pass.scores[r] + g * 16), inverse));
      store_low_bytes(pass.weights_low[r] + g * 16, w);
      store_low_bytes(pass.weights_high[r] + g * 16, shift_right_8(w));
    }
  } else {
    for (int g = 0; g < num_groups; ++g) {
      VecF p = load(pass.scores[r] + g * 16);
      if constexpr (by_pairs(F)) {
        store_bf16(pass.weights_bf16[r] + g * 16, p);
        p = load_bf16(pass.weights_bf16[r] + g * 16);
      }
      sum = add(sum, p);
    }
  }
  return reduce_sum(sum);
}

// Fetches the lines of the next tile's keys that step i of group g stands for.
template <int N>
static inline void fetch_keys(const TileBlocks* next, const KvLayer& kv, int g, int i, int v0) {
  const uint8_t* keys = next->keys[g] + (i * (kv.head_dim / 16) + v0) * (kv.block_size * 4);
  OCTAVO_UNROLL
  for (int n = 0; n < N; ++n) fetch(keys + n * (kv.block_size * 4));
}

// out[r][v * 16 ..] = out * factor + weights * values, for N vectors of channels from v0.
template <KvFormat F, int R, int N>
OCTAVO_OWN_REGISTERS static void values_of_channels(const TileBlocks& t, const TileBlocks* next, int num_groups,
                                      int v0, const KvLayer& kv, const Pass<F, R>& pass) {
  const int64_t stride = kv.head_dim * 4;  // four tokens, two, or one
  constexpr int kSteps = F == KvFormat::kInt8 ? 4 : F == KvFormat::kBf16 ? 8 : 16;
  if constexpr (F == KvFormat::kFp8) {
    fp8_values<R, N>(t, next, num_groups, v0, kv, pass);
  } else if constexpr (F == KvFormat::kInt8) {
    VecI high[R][N], low[R][N];
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) high[r][n] = low[r][n] = splat_int(0);
    }
    for (int g = 0; g < num_groups; ++g) {
      const uint8_t* base = t.values[g] + v0 * kLine;
      OCTAVO_NO_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        if (next != nullptr) fetch_keys<N>(next, kv, g, i, v0);
        Bytes v[N];
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) v[n] = load_bytes(base + i * stride + n * kLine);
        OCTAVO_UNROLL
        for (int r = 0; r < R; ++r) {
          const UnsignedQuad h = splat_unsigned_quad(pass.weights_high[r] + g * 16 + 4 * i);
          const UnsignedQuad l = splat_unsigned_quad(pass.weights_low[r] + g * 16 + 4 * i);
          OCTAVO_UNROLL
          for (int n = 0; n < N; ++n) {
            high[r][n] = dot_s8u8(high[r][n], v[n], h);
            low[r][n] = dot_s8u8(low[r][n], v[n], l);
          }
        }
      }
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) {
        // 128 keys x 65535 x 127 is below 2^31: the sum of both planes is exact.
        const VecF sum = to_float(add_int(shift_left_8(high[r][n]), low[r][n]));
        float* out = pass.out[r] + (v0 + n) * 16;
        store(out, fma(sum, splat(pass.weight_unit[r]), mul(load(out), splat(pass.factor[r]))));
      }
    }
  } else {
    VecF acc[R][N];
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) {
        acc[r][n] = mul(load(pass.out[r] + (v0 + n) * 16), splat(pass.factor[r]));
      }
    }
    for (int g = 0; g < num_groups; ++g) {
      const uint8_t* base = t.values[g] + v0 * kLine;
      OCTAVO_NO_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        if (next != nullptr) fetch_keys<N>(next, kv, g, i, v0);
        if constexpr (F == KvFormat::kBf16) {
          Pairs v[N];
          OCTAVO_UNROLL
          for (int n = 0; n < N; ++n) v[n] = load_pairs(base + i * stride + n * kLine);
          OCTAVO_UNROLL
          for (int r = 0; r < R; ++r) {
            const Pairs p = splat_pair(pass.weights_bf16[r] + g * 16 + 2 * i);
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
            const VecF p = splat(pass.scores[r][g * 16 + i]);
            OCTAVO_UNROLL
            for (int n = 0; n < N; ++n) acc[r][n] = fma(v[n], p, acc[r][n]);
          }
        }
      }
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) store(pass.out[r] + (v0 + n) * 16, acc[r][n]);
    }
  }
}

// Symmetric int8 of a head: q[n], n a multiple of 16. Returns the scale.
static inline float quantize_head(const float* x, int64_t n, int8_t* q) {
  VecF largest = zero();
  for (int64_t i = 0; i < n; i += 16) largest = vmax(largest, vabs(load(x + i)));
  const float top = reduce_max(largest);
  const VecF inverse = splat(top > 0.0f ? 127.0f / top : 0.0f);
  for (int64_t i = 0; i < n; i += 16) store_i8(q + i, to_int(mul(load(x + i), inverse)));
  return top / 127.0f;
}

static void write_kv_int8(const KvLayer& kv, uint8_t* block, int64_t slot, const float* key,
                          const float* value) {
  const int64_t d = kv.head_dim, b = kv.block_size, values = kv_values_offset(kv);
  float* scales = reinterpret_cast<float*>(block + 2 * values);
  int8_t q[kMaxHeadDim];
  scales[slot] = quantize_head(key, d, q);
  for (int64_t i = 0; i < d; ++i) {
    block[(i / 4 * b + slot) * 4 + i % 4] = static_cast<uint8_t>(q[i] + 128);
  }
  scales[b + slot] = quantize_head(value, d, q);
  for (int64_t i = 0; i < d; ++i) {
    block[values + (slot / 4 * d + i) * 4 + slot % 4] = static_cast<uint8_t>(q[i]);
  }
}

static void write_kv_bf16(const KvLayer& kv, uint8_t* block, int64_t slot, const float* key,
                          const float* value) {
  const int64_t d = kv.head_dim, b = kv.block_size;
  uint16_t* k = reinterpret_cast<uint16_t*>(block);
  uint16_t* v =
      reinterpret_cast<uint16_t*>(block + kv_values_offset(kv)) + slot / 2 * 2 * d + slot % 2;
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

static void write_kv_f32(const KvLayer& kv, uint8_t* block, int64_t slot, const float* key,
                         const float* value) {
  const int64_t d = kv.head_dim, b = kv.block_size;
  float* k = reinterpret_cast<float*>(block);
  float* v = reinterpret_cast<float*>(block + kv_values_offset(kv)) + slot * d;
  for (int64_t i = 0; i < d; ++i) k[i * b + slot] = key[i];
  for (int64_t i = 0; i < d; i += 16) store(v + i, load(value + i));
}

static void write_kv(const KvLayer& kv, int32_t block, int32_t slot, int32_t kv_head,
                     const float* key, const float* value) {
  uint8_t* p = kv_keys(kv, block, kv_head);
  switch (kv.format) {
    case KvFormat::kF32:
      return write_kv_f32(kv, p, slot, key, value);
    case KvFormat::kBf16:
      return write_kv_bf16(kv, p, slot, key, value);
    case KvFormat::kInt8:
      return write_kv_int8(kv, p, slot, key, value);
    case KvFormat::kFp8:
      return write_kv_fp8(kv, p, slot, key, value);
  }
}
