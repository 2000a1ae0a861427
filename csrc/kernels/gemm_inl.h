// Tile kernels: out[R][32] = activations[R][k] * tile[k][32]. Included inside a tier's namespace.
//
// Each output element is one chain of additions in the order of k, whatever R is, so a row's bits
// do not depend on the rows beside it. Accumulators stay in registers: a tier says how many rows
// and panels it holds (simd_*.h). Here: what the kernels share, and those of grouped weights.

#if defined(OCTAVO_TIER_GENERIC)
#define OCTAVO_UNROLL  // lanes are loops here already; unrolling them takes a minute to compile
#else
#define OCTAVO_UNROLL _Pragma("GCC unroll 8")
#endif
// Unrolled further, a loop that fills the registers needs more of them.
#define OCTAVO_NO_UNROLL _Pragma("GCC unroll 1")
// A loop over the 128 floats of a tile: AVX-512 holds them all.
#if defined(OCTAVO_TIER_AVX512)
#define OCTAVO_UNROLL_TILE OCTAVO_UNROLL
#else
#define OCTAVO_UNROLL_TILE OCTAVO_NO_UNROLL
#endif

// A row of a tile: where registers are few, a function of its own, else the compiler would keep
// what all rows need in them.
#if defined(OCTAVO_TIER_AVX512)
#define OCTAVO_TILE_ROW static inline
#else
#define OCTAVO_TILE_ROW __attribute__((noinline)) static
#endif

// A function whose loops fill the registers is not inlined into another: the compiler would keep
// that one's vectors on the stack, or this one's.
#define OCTAVO_OWN_REGISTERS __attribute__((noinline))

// Hands out prefetches evenly over `steps` steps, to the first-level cache.
class Prefetcher {
 public:
  inline Prefetcher(Prefetch p, int64_t steps)
      : next_(p.begin),
        end_(p.begin + p.num_lines * kLine),
        per_step_(steps > 0 ? (p.num_lines + steps - 1) / steps : 0) {}
  inline void step() {
    for (int64_t i = 0; i < per_step_ && next_ < end_; ++i, next_ += kLine) {
      __builtin_prefetch(next_, 0, 3);
    }
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
  int64_t per_step_;
};

// Quantized weights w = d * (u - zero) + m against activations in groups: an exact integer dot
// product per group, started at what the stored zero takes off, then one fused multiply-add into
// the float accumulator.
// kSmall: bytes are below 128, the same signed and unsigned.
template <WeightFormat F>
struct Grouped;
template <>
struct Grouped<WeightFormat::kU4> {
  static constexpr int kK = 32, kPanelLines = 4, kZero = 0;
  static constexpr bool kNibble = true, kSmall = true, kMin = true;
};
template <>
struct Grouped<WeightFormat::kS8> {
  static constexpr int kK = 32, kPanelLines = 8, kZero = 128;
  static constexpr bool kNibble = false, kSmall = false, kMin = false;
};
template <>
struct Grouped<WeightFormat::kS8x16> {
  static constexpr int kK = 16, kPanelLines = 4, kZero = 128;
  static constexpr bool kNibble = false, kSmall = false, kMin = false;
};
template <>
struct Grouped<WeightFormat::kU8> {
  static constexpr int kK = 32, kPanelLines = 8, kZero = 0;
  static constexpr bool kNibble = false, kSmall = true, kMin = true;
};

// Byte offsets inside a record. With minima a panel's scales follow its lines; without, both
// panels' scales share the last line.
template <class G>
static constexpr int64_t panel_offset(int p) {
  return p * (G::kPanelLines + (G::kMin ? 1 : 0)) * kLine;
}
template <class G>
static constexpr int64_t scale_offset(int p) {
  return G::kMin ? panel_offset<G>(p) + G::kPanelLines * kLine
                 : 2 * G::kPanelLines * kLine + p * 32;
}

// The 16 weights of a panel at one k, as floats.
template <WeightFormat F>
static inline VecF panel_weights(const uint8_t* tile, int64_t k, int p) {
  using G = Grouped<F>;
  const uint8_t* record = tile + k / G::kK * record_bytes(F);
  const int i = static_cast<int>(k % G::kK);
  const int line = G::kNibble ? i / 8 : i / 4;
  const int shift = i % 4 * 8 + (G::kNibble && i % 8 >= 4 ? 4 : 0);
  const VecF u =
      lane_bits(record + panel_offset<G>(p) + line * kLine, shift, G::kNibble ? 15 : 255);
  const uint16_t* half = reinterpret_cast<const uint16_t*>(record + scale_offset<G>(p));
  const VecF scaled = mul(sub(u, splat(G::kZero)), load_f16(half));
  return G::kMin ? add(scaled, load_f16(half + 16)) : scaled;
}

template <class G>
static inline Bytes load_line_of(const uint8_t* p) {
  return G::kSmall ? load_bytes(p) : load_unsigned(p);
}

// P panels from `panel` on.
template <WeightFormat F, int R, int P>
static inline void grouped_panels(const ActView& a, int64_t first_row, const uint8_t* tile,
                                  int panel, const Prefetches& next, float* out) {
  using G = Grouped<F>;
  constexpr int kShift = G::kSmall ? 0 : kUnsignedShift;
  const int64_t groups = a.k / G::kK;
  const int64_t scales = a.k / kGroup;
  const int8_t* q = a.q + first_row * a.k;
  const float* scale = a.scale + first_row * scales;
  const float* sum = a.sum + first_row * scales;
  const int32_t* sum16 = a.sum16 + first_row * (a.k / 16);
  VecF acc[R][P];
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) acc[r][p] = zero();
  }
  Prefetcher tile_prefetch(next.tile, groups);
  Prefetcher kv_prefetch(next.kv, groups);
  for (int64_t g = 0; g < groups; ++g) {
    tile_prefetch.step();
    kv_prefetch.step();
    const uint8_t* record = tile + g * record_bytes(F);
    VecI dot[R][P];
    OCTAVO_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t start = 0;
      if constexpr (kShift != G::kZero) {
        const int32_t* s = sum16 + r * (a.k / 16) + g * (G::kK / 16);
        start = (kShift - G::kZero) * (G::kK == 32 ? s[0] + s[1] : s[0]);
      }
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) dot[r][p] = splat_int(start);
    }
    OCTAVO_UNROLL
    for (int j = 0; j < G::kPanelLines; ++j) {
      Bytes line[P], first[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        line[p] = load_line_of<G>(record + panel_offset<G>(panel + p) + j * kLine);
        first[p] = G::kNibble ? low_nibbles(line[p]) : line[p];
      }
      const int64_t k = g * G::kK + j * (G::kNibble ? 8 : 4);
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const Quad x = splat_quad(q + r * a.k + k);
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) dot[r][p] = dot_u8s8<G::kSmall>(dot[r][p], first[p], x);
      }
      if constexpr (G::kNibble) {
        Bytes second[P];
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) second[p] = high_nibbles(line[p]);
        OCTAVO_UNROLL
        for (int r = 0; r < R; ++r) {
          const Quad x = splat_quad(q + r * a.k + k + 4);
          OCTAVO_UNROLL
          for (int p = 0; p < P; ++p) dot[r][p] = dot_u8s8<G::kSmall>(dot[r][p], second[p], x);
        }
      }
    }
    const int64_t s = g * G::kK / kGroup;
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const uint16_t* half = reinterpret_cast<const uint16_t*>(record + scale_offset<G>(panel + p));
      const VecF d = load_f16(half);
      OCTAVO_UNROLL
      for (int r = 0; r < R; ++r) {
        const VecF weighted = mul(d, splat(scale[r * scales + s]));
        acc[r][p] = fma(to_float(dot[r][p]), weighted, acc[r][p]);
      }
      if constexpr (G::kMin) {
        const VecF m = load_f16(half + 16);
        OCTAVO_UNROLL
        for (int r = 0; r < R; ++r) acc[r][p] = fma(m, splat(sum[r * scales + s]), acc[r][p]);
      }
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < R; ++r) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) store(out + r * kTileCols + p * kPanelCols, acc[r][p]);
  }
}

template <WeightFormat F, int R>
static void gemm_grouped(const ActView& a, int64_t first_row, const uint8_t* tile,
                         const Prefetches& next, float* out) {
  // What is fetched meanwhile is fetched once.
  grouped_panels<F, R, kPanelsAtOnce>(a, first_row, tile, 0, next, out);
  if constexpr (kPanelsAtOnce == 1) {
    grouped_panels<F, R, 1>(a, first_row, tile, 1, {}, out + kPanelCols);
  }
}

template <WeightFormat F>
static void add_outliers(const uint8_t* tile, const OutlierColumn* columns, int64_t num_columns,
                         const Outlier* outliers, float* out) {
  for (int64_t c = 0; c < num_columns; ++c) {
    const VecF w0 = panel_weights<F>(tile, columns[c].k, 0);
    const VecF w1 = panel_weights<F>(tile, columns[c].k, 1);
    for (int32_t i = columns[c].begin; i < columns[c].end; ++i) {
      float* row = out + outliers[i].row * kTileCols;
      const VecF value = splat(outliers[i].value);
      store(row, fma(w0, value, load(row)));
      store(row + 16, fma(w1, value, load(row + 16)));
    }
  }
}

// One column of a grouped tile, dequantized.
template <WeightFormat F>
static void grouped_column(const uint8_t* tile, int64_t k, int column, float* out) {
  using G = Grouped<F>;
  const int p = column / kPanelCols, lane = column % kPanelCols;
  for (int64_t g = 0; g < k / G::kK; ++g) {
    const uint8_t* record = tile + g * record_bytes(F);
    const uint16_t* half = reinterpret_cast<const uint16_t*>(record + scale_offset<G>(p));
    alignas(64) float scales[16], minima[16] = {};
    store(scales, load_f16(half));
    if (G::kMin) store(minima, load_f16(half + 16));
    const uint8_t* lines = record + panel_offset<G>(p) + lane * 4;
    for (int i = 0; i < G::kK; ++i) {
      const int byte = G::kNibble ? i % 8 % 4 : i % 4;
      const int line = G::kNibble ? i / 8 : i / 4;
      int u = lines[line * kLine + byte];
      if (G::kNibble) u = i % 8 < 4 ? u & 0x0f : u >> 4;
      out[g * G::kK + i] = scales[lane] * static_cast<float>(u - G::kZero) + minima[lane];
    }
  }
}
