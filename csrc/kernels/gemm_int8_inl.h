// Tile kernels of int8 weights with one scale for a column, against activations with one scale for
// a row. Included inside a tier's namespace, after gemm_inl.h.
//
// The sum over k is one exact integer; both scales come after it. Weights are kept as q + 128,
// since the dot product instructions take unsigned by signed bytes: the sum starts at -128 times
// the sum of the row.

template <int R, int P>
static inline void int8_panels(const ActView& a, int64_t first_row, const uint8_t* tile, int panel,
                               const Prefetches& next, float* out) {
  constexpr WeightFormat F = WeightFormat::kI8;
  const int64_t steps = a.k / record_k(F);
  const int8_t* q = a.q + first_row * a.k;
  const uint8_t* lines = tile + header_bytes(F) + panel * kLine;
  VecI acc[R][P];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p)
      acc[r][p] = splat_int((kUnsignedShift - 128) * a.row_sum[first_row + r]);
  }
  constexpr int kStepsPerPrefetch = 8;  // 32 numbers of k, as in the grouped kernels
  Prefetcher tile_prefetch(next.tile, steps / kStepsPerPrefetch);
  Prefetcher kv_prefetch(next.kv, steps / kStepsPerPrefetch);
  for (int64_t i = 0; i < steps; ++i) {
    if (i % kStepsPerPrefetch == 0) tile_prefetch.step(), kv_prefetch.step();
    Bytes w[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) w[p] = load_unsigned(lines + (2 * i + p) * kLine);
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      const Quad x = splat_quad(q + r * a.k + 4 * i);
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) acc[r][p] = dot_u8s8<false>(acc[r][p], w[p], x);
    }
  }
  const float* scales = reinterpret_cast<const float*>(tile) + panel * kPanelCols;
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    const VecF d = load(scales + p * kPanelCols);
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      const VecF scale = mul(d, splat(a.scale[first_row + r]));
      store(out + r * kTileCols + p * kPanelCols, mul(to_float(acc[r][p]), scale));
    }
  }
}

template <int R>
static void gemm_int8(const ActView& a, int64_t first_row, const uint8_t* tile,
                      const Prefetches& next, float* out) {
  int8_panels<R, kPanelsAtOnce>(a, first_row, tile, 0, next, out);
  if constexpr (kPanelsAtOnce == 1) {
    int8_panels<R, 1>(a, first_row, tile, 1, {}, out + kPanelCols);
  }
}

template <>
inline VecF panel_weights<WeightFormat::kI8>(const uint8_t* tile, int64_t k, int p) {
  const uint8_t* line = tile + header_bytes(WeightFormat::kI8) + (k / 4 * 2 + p) * kLine;
  const VecF u = lane_bits(line, static_cast<int>(k % 4) * 8, 255);
  return mul(sub(u, splat(128.0f)), load(reinterpret_cast<const float*>(tile) + p * kPanelCols));
}

static void int8_column(const uint8_t* tile, int64_t k, int column, float* out) {
  const float scale = reinterpret_cast<const float*>(tile)[column];
  const uint8_t* bytes = tile + header_bytes(WeightFormat::kI8) + column * 4;
  for (int64_t i = 0; i < k; ++i) {
    out[i] = static_cast<float>(bytes[i / 4 * 2 * kLine + i % 4] - 128) * scale;
  }
}
