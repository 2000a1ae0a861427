// Tile kernels of float32 and bfloat16 weights. Included inside a tier's namespace, after
// gemm_inl.h.
//
// Eight rows of two panels are 16 chains of dot products: enough to keep both multipliers busy, and
// few enough to stay in AVX-512's registers. AVX2 has half the registers of half the size: it walks
// one panel at a time. Each output element is one chain in the order of k either way.

// A k-step of a tile: one float, or a pair of bfloat16.
template <WeightFormat F>
struct Dense;
template <>
struct Dense<WeightFormat::kF32> {
  static inline const float* row(const ActView& a, int64_t r) { return a.f32 + r * a.k; }
  static inline VecF weights(const uint8_t* line) {
    return load(reinterpret_cast<const float*>(line));
  }
  static inline VecF activation(const float* x, int64_t step) { return splat(x[step]); }
  static inline VecF dot(VecF acc, VecF w, VecF x) { return fma(w, x, acc); }
};
template <>
struct Dense<WeightFormat::kBf16> {
  static inline const uint16_t* row(const ActView& a, int64_t r) { return a.bf16 + r * a.k; }
  static inline Pairs weights(const uint8_t* line) { return load_pairs(line); }
  static inline auto activation(const uint16_t* x, int64_t step) {
    return splat_pair(x + 2 * step);
  }
  template <class Splat>
  static inline VecF dot(VecF acc, Pairs w, Splat x) {
    return dot_bf16(acc, w, x);
  }
};

template <WeightFormat F, int R, int P>
static inline void dense_panels(const ActView& a, int64_t first_row, const uint8_t* panel,
                                const Prefetches& next, float* out) {
  using D = Dense<F>;
  const int64_t steps = a.k / record_k(F), stride = a.k;
  const auto* x = D::row(a, first_row);
  VecF acc[R][P];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) acc[r][p] = zero();
  }
  constexpr int kStepsPerPrefetch = 8;
  Prefetcher tile_prefetch(next.tile, steps / kStepsPerPrefetch);
  Prefetcher kv_prefetch(next.kv, steps / kStepsPerPrefetch);
  for (int64_t i = 0; i < steps; ++i) {
    if (i % kStepsPerPrefetch == 0) tile_prefetch.step(), kv_prefetch.step();
    decltype(D::weights(panel)) w[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) w[p] = D::weights(panel + (2 * i + p) * kLine);
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto xr = D::activation(x + r * stride, i);
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) acc[r][p] = D::dot(acc[r][p], w[p], xr);
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) store(out + r * kTileCols + p * kPanelCols, acc[r][p]);
  }
}

template <WeightFormat F, int R>
static void gemm_dense(const ActView& a, int64_t first_row, const uint8_t* tile,
                       const Prefetches& next, float* out) {
  // What is fetched meanwhile is fetched once.
  dense_panels<F, R, kPanelsAtOnce>(a, first_row, tile, next, out);
  if constexpr (kPanelsAtOnce == 1) {
    dense_panels<F, R, 1>(a, first_row, tile + kLine, {}, out + kPanelCols);
  }
}
