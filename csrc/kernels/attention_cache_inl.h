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
// Keys are kept as q + 128: most dot product instructions take unsigned by signed bytes.

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

// Whether weights, and queries, are multiplied as pairs of bfloat16.
constexpr bool by_pairs(KvFormat f) { return f == KvFormat::kBf16 || f == KvFormat::kFp8; }
// Bytes of a query's number.
constexpr int64_t query_element(KvFormat f) {
  return f == KvFormat::kF32 ? 4 : by_pairs(f) ? 2 : 1;
}

static inline void fetch(const uint8_t* p) { __builtin_prefetch(p, 0, 3); }

// How 4 bytes of each of 16 keys are multiplied with 4 bytes of a query.
template <KvFormat F>
struct KeyMath;
template <>
struct KeyMath<KvFormat::kF32> {
  using Acc = VecF;
  static inline VecF key(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
  static inline VecF query(const int32_t* p) { return splat(*reinterpret_cast<const float*>(p)); }
  static inline VecF dot(VecF acc, VecF k, VecF q) { return fma(k, q, acc); }
};
template <>
struct KeyMath<KvFormat::kBf16> {
  using Acc = VecF;
  static inline Pairs key(const uint8_t* p) { return load_pairs(p); }
  static inline auto query(const int32_t* p) {
    return splat_pair(reinterpret_cast<const uint16_t*>(p));
  }
  template <class Splat>
  static inline VecF dot(VecF acc, Pairs k, Splat q) {
    return dot_bf16(acc, k, q);
  }
};
template <>
struct KeyMath<KvFormat::kInt8> {
  using Acc = VecI;
  static inline Bytes key(const uint8_t* p) { return load_unsigned(p); }
  static inline Quad query(const int32_t* p) {
    return splat_quad(reinterpret_cast<const int8_t*>(p));
  }
  static inline VecI dot(VecI acc, Bytes k, Quad q) { return dot_u8s8<false>(acc, k, q); }
};

// What a pass of R rows multiplies with a tile.
template <KvFormat F, int R>
struct Pass {
  const int32_t* query;        // [D / numbers in 4 bytes][R] in the form that keys are read in
  const float* query_scale;    // [R] int8 only
  const int32_t* query_start;  // [R] int8 only: what scores begin with
  float* out;                  // [R][D]
  alignas(64) float scores[R][kKeysPerTile];  // then the weights, in float
  alignas(64) uint16_t weights_bf16[R][kKeysPerTile];
  alignas(64) uint8_t weights_high[R][kKeysPerTile];  // int8: weights in 16 bits, in two planes
  alignas(64) uint8_t weights_low[R][kKeysPerTile];
  float weight_unit[R];    // int8: what 1 in 16 bits stands for
  int32_t value_start[R];  // int8: what sums begin with, since values are read as v + kSignedShift
  float factor[R];         // for what was summed before this tile
};

// scores[r][g * 16 ..] for N groups from g0. While keys are read, the tile's values are fetched.
template <KvFormat F, int R, int N, bool kFetch>
OCTAVO_OWN_REGISTERS static void scores_of_groups(const TileBlocks& t, int g0, const KvLayer& kv,
                                                  Pass<F, R>& pass) {
  using Math = KeyMath<F>;
  const int64_t stride = kv.block_size * 4;
  const int64_t steps = kv.head_dim * kv_element(F) / 4;
  typename Math::Acc acc[R][N] = {};
  const uint8_t* keys[N];
  const uint8_t* values[N];
  OCTAVO_UNROLL
  for (int n = 0; n < N; ++n) keys[n] = t.keys[g0 + n], values[n] = t.values[g0 + n];
  const int32_t* query = pass.query;
  for (int64_t i = 0; i < steps; ++i, query += R) {
    decltype(Math::key(nullptr)) k[N];
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) k[n] = Math::key(keys[n] + i * stride);
    if constexpr (kFetch) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) fetch(values[n] + i * kLine);
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto x = Math::query(query + r);
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = Math::dot(acc[r][n], k[n], x);
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) {
      float* scores = pass.scores[r] + (g0 + n) * 16;
      if constexpr (F == KvFormat::kInt8) {
        const VecI sum = add_int(acc[r][n], splat_int(pass.query_start[r]));
        const VecF scale = mul(load(t.key_scales[g0 + n]), splat(pass.query_scale[r]));
        store(scores, mul(to_float(sum), scale));
      } else {
        store(scores, acc[r][n]);
      }
    }
  }
}

// The weights of a tile, of row r, into the form that the values take. Returns the sum of what is
// used.
template <KvFormat F, int R>
static inline VecF round_weights(const TileBlocks& t, int r, Pass<F, R>& pass) {
  float* const p = pass.scores[r];
  VecF sum = zero();
  if constexpr (F == KvFormat::kInt8) {
    // Times the token's scale, in units of the largest / 65535: exact in integers, twice 8 bits.
    VecF largest = zero();
    OCTAVO_UNROLL_TILE
    for (int g = 0; g < kGroupsPerTile; ++g) {
      const VecF weight = load(p + g * 16);
      sum = add(sum, weight);
      const VecF scaled = keep_above(mul(weight, load(t.value_scales[g])), weight, 0.0f);
      largest = vmax(largest, scaled);
      store(p + g * 16, scaled);
    }
    const float top = reduce_max(largest);
    pass.weight_unit[r] = top / 65535.0f;
    const VecF inverse = splat(top > 0.0f ? 65535.0f / top : 0.0f);
    VecI total = splat_int(0);
    OCTAVO_UNROLL_TILE
    for (int i = 0; i < kKeysPerTile; i += 16) {
      const VecI w = to_int(mul(load(p + i), inverse));
      if constexpr (kSignedShift != 0) total = add_int(total, w);
      store_low_bytes(pass.weights_low[r] + i, w);
      store_low_bytes(pass.weights_high[r] + i, shift_right_8(w));
    }
    if constexpr (kSignedShift != 0) pass.value_start[r] = -kSignedShift * reduce_sum_int(total);
  } else if constexpr (by_pairs(F)) {
    const uint16_t ones[2] = {0x3f80, 0x3f80};
    sum = store_and_sum_bf16(pass.weights_bf16[r], p, kKeysPerTile, splat_pair(ones));
  } else {
    OCTAVO_UNROLL
    for (int i = 0; i < kKeysPerTile; i += 16) sum = add(sum, load(p + i));
  }
  return sum;
}

// Fetches the next tile's keys while values are read: as many lines of each group.
template <int N, bool kFetch>
class KeyFetcher {
 public:
  inline KeyFetcher(const uint8_t* keys, const KvLayer& kv, int v0)
      : stride_(kv.block_size * 4), jump_(kv.head_dim / 16 * stride_), next_(keys + v0 * stride_) {}
  inline void step() {
    if constexpr (kFetch) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) fetch(next_ + n * stride_);
      next_ += jump_;
    }
  }

 private:
  const int64_t stride_;
  const int64_t jump_;
  const uint8_t* next_;
};

// out[r][v * 16 ..] = out * factor + weights * values, for N vectors of channels from v0.
template <KvFormat F, int R, int N, bool kFetch>
OCTAVO_OWN_REGISTERS static void values_of_channels(const TileBlocks& t, const TileBlocks& next,
                                                    int num_groups, int v0, const KvLayer& kv,
                                                    const Pass<F, R>& pass) {
  static_assert(F != KvFormat::kInt8);
  constexpr int kSteps = F == KvFormat::kBf16 ? 8 : 16;  // tokens of a group, in pairs or alone
  using Math = KeyMath<F>;
  VecF acc[R][N];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) {
      acc[r][n] = mul(load(pass.out + r * kv.head_dim + (v0 + n) * 16), splat(pass.factor[r]));
    }
  }
  constexpr int kRow = sizeof(pass.scores[0]) / (F == KvFormat::kBf16 ? 2 : 1) / 4;
  const int32_t* weights = F == KvFormat::kBf16
                               ? reinterpret_cast<const int32_t*>(pass.weights_bf16[0])
                               : reinterpret_cast<const int32_t*>(pass.scores[0]);
  const int64_t stride = kv.head_dim * 4;
  for (int g = 0; g < num_groups; ++g) {
    const uint8_t* base = t.values[g] + v0 * kLine;
    KeyFetcher<N, kFetch> fetcher(next.keys[g], kv, v0);
    OCTAVO_NO_UNROLL
    for (int i = 0; i < kSteps; ++i, base += stride, ++weights) {
      decltype(Math::key(nullptr)) v[N];
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) v[n] = Math::key(base + n * kLine);
      fetcher.step();
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto p = Math::query(weights + r * kRow);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = Math::dot(acc[r][n], v[n], p);
      }
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) store(pass.out + r * kv.head_dim + (v0 + n) * 16, acc[r][n]);
  }
}

// The same for int8: both planes of the weights, exact in integers.
template <int R, int N, bool kFetch>
OCTAVO_OWN_REGISTERS static void int8_values_of_channels(const TileBlocks& t,
                                                         const TileBlocks& next, int num_groups,
                                                         int v0, const KvLayer& kv,
                                                         const Pass<KvFormat::kInt8, R>& pass) {
  VecI high[R][N] = {}, low[R][N] = {};
  if constexpr (kSignedShift != 0) {
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) low[r][n] = splat_int(pass.value_start[r]);
    }
  }
  const uint8_t* weights_high = pass.weights_high[0];
  const uint8_t* weights_low = pass.weights_low[0];
  const int64_t stride = kv.head_dim * 4;
  for (int g = 0; g < num_groups; ++g) {
    const uint8_t* base = t.values[g] + v0 * kLine;
    KeyFetcher<N, kFetch> fetcher(next.keys[g], kv, v0);
    OCTAVO_NO_UNROLL
    for (int i = 0; i < 4; ++i, base += stride, weights_high += 4, weights_low += 4) {
      Bytes v[N];
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) v[n] = load_signed(base + n * kLine);
      fetcher.step();
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const UnsignedQuad h = splat_unsigned_quad(weights_high + r * kKeysPerTile);
        const UnsignedQuad l = splat_unsigned_quad(weights_low + r * kKeysPerTile);
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
      float* out = pass.out + r * kv.head_dim + (v0 + n) * 16;
      store(out, fma(sum, splat(pass.weight_unit[r]), mul(load(out), splat(pass.factor[r]))));
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
