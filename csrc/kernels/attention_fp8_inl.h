// Keys and values in FP8 E4M3: read as pairs of bfloat16, which hold every such number exactly.
// Included inside a tier's namespace, after attention_cache_inl.h.
//
// Four numbers of a lane lie as 0, 2, 1, 3: the even bytes are one pair and the odd bytes the next,
// without a shuffle.

template <int R, int N, bool kFetch>
OCTAVO_OWN_REGISTERS static void fp8_scores_of_groups(const TileBlocks& t, int g0,
                                                      const KvLayer& kv,
                                                      Pass<KvFormat::kFp8, R>& pass) {
  const int64_t stride = kv.block_size * 4;
  const int32_t* query = pass.query;
  VecF acc[R][N] = {};
  for (int64_t i = 0; i < kv.head_dim / 4; ++i, query += 2 * R) {
    Pairs first[N], second[N];
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) {
      if constexpr (kFetch) fetch(t.values[g0 + n] + i * kLine);
      load_fp8(t.keys[g0 + n] + i * stride, &first[n], &second[n]);
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto x = splat_pair(reinterpret_cast<const uint16_t*>(query + r));
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = dot_bf16(acc[r][n], first[n], x);
    }
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto x = splat_pair(reinterpret_cast<const uint16_t*>(query + R + r));
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = dot_bf16(acc[r][n], second[n], x);
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) store(pass.scores[r] + (g0 + n) * 16, acc[r][n]);
  }
}

template <int R, int N, bool kFetch>
OCTAVO_OWN_REGISTERS static void fp8_values_of_channels(const TileBlocks& t, const TileBlocks& next,
                                                        int num_groups, int v0, const KvLayer& kv,
                                                        const Pass<KvFormat::kFp8, R>& pass) {
  VecF acc[R][N];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) {
      acc[r][n] = mul(load(pass.out + r * kv.head_dim + (v0 + n) * 16), splat(pass.factor[r]));
    }
  }
  const uint16_t* weights = pass.weights_bf16[0];
  const int64_t stride = kv.head_dim * 4;  // four tokens
  for (int g = 0; g < num_groups; ++g) {
    const uint8_t* base = t.values[g] + v0 * kLine;
    KeyFetcher<N, kFetch> fetcher(next.keys[g], kv, v0);
    OCTAVO_NO_UNROLL
    for (int i = 0; i < 4; ++i, base += stride, weights += 4) {
      Pairs first[N], second[N];
      OCTAVO_UNROLL
      for (int n = 0; n < N; ++n) load_fp8(base + n * kLine, &first[n], &second[n]);
      fetcher.step();
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto p = splat_pair(weights + r * kKeysPerTile);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = dot_bf16(acc[r][n], first[n], p);
      }
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto p = splat_pair(weights + r * kKeysPerTile + 2);
        OCTAVO_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = dot_bf16(acc[r][n], second[n], p);
      }
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int n = 0; n < N; ++n) store(pass.out + r * kv.head_dim + (v0 + n) * 16, acc[r][n]);
  }
}

// Where number j of four lies in its lane.
static inline int fp8_byte(int64_t j) { return static_cast<int>(j % 2 * 2 + j / 2); }

static void write_kv_fp8(const KvLayer& kv, uint8_t* block, int64_t slot, const float* key,
                         const float* value) {
  const int64_t d = kv.head_dim, b = kv.block_size;
  uint8_t* values = block + kv_values_offset(kv) + slot / 4 * 4 * d + fp8_byte(slot % 4);
  for (int64_t i = 0; i < d; ++i) {
    block[(i / 4 * b + slot) * 4 + fp8_byte(i % 4)] = float_to_e4m3(key[i]);
    values[4 * i] = float_to_e4m3(value[i]);
  }
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
