// How fast this tier multiplies and adds when all is in registers and nothing waits: what the
// kernels are measured against. Included inside a tier's namespace, after simd.h.

// Products that do not wait for each other: enough to hide the latency of one, few enough for the
// registers.
#if defined(OCTAVO_TIER_AVX512)
constexpr int kPeakChains = 12;
#else
constexpr int kPeakChains = 5;  // of two registers each, or four of NEON's
#endif

// The compiler must take x for new, else it computes a product once for all.
template <class T>
static inline void renew(T& x) {
#if defined(OCTAVO_TIER_AVX512)
  asm volatile("" : "+v"(x.v));
#elif defined(OCTAVO_TIER_AVX2)
  asm volatile("" : "+x"(x.lo), "+x"(x.hi));
#elif defined(OCTAVO_TIER_NEON)
  asm volatile("" : "+w"(x.v[0]), "+w"(x.v[1]), "+w"(x.v[2]), "+w"(x.v[3]));
#else
  asm volatile("" : "+m"(x));
#endif
}

// `rounds` times acc[i] = multiply_add(acc[i], w, a) for all chains i, all in registers.
template <class Acc, class W, class A, class MultiplyAdd>
static inline void peak_rounds(int64_t rounds, Acc (&acc)[kPeakChains], W w, const A& a,
                               MultiplyAdd fn) {
  for (int64_t r = 0; r < rounds; ++r) {
    for (Acc& chain : acc) {
      renew(w);
      chain = fn(chain, w, a);
    }
  }
}

// Each does `rounds` rounds and returns the additions and multiplications. `in` are 16 floats that
// the compiler does not know; `out` (16 floats) receives a result, so that the work is not left
// out.
static int64_t peak_f32(int64_t rounds, const float* in, float* out) {
  VecF acc[kPeakChains];
  for (VecF& chain : acc) chain = load(in);
  peak_rounds(rounds, acc, load(in), splat(in[0]),
              [](VecF c, VecF x, VecF y) { return fma(x, y, c); });
  for (int i = 1; i < kPeakChains; ++i) acc[0] = add(acc[0], acc[i]);
  store(out, acc[0]);
  return rounds * kPeakChains * 16 * 2;
}

static int64_t peak_bf16(int64_t rounds, const float* in, float* out) {
  VecF acc[kPeakChains];
  for (VecF& chain : acc) chain = load(in);
  const Pairs a = splat_pair(reinterpret_cast<const uint16_t*>(in));
  peak_rounds(rounds, acc, load_pairs(in), a,
              [](VecF c, Pairs x, Pairs y) { return dot_bf16(c, x, y); });
  for (int i = 1; i < kPeakChains; ++i) acc[0] = add(acc[0], acc[i]);
  store(out, acc[0]);
  return rounds * kPeakChains * 16 * 2 * 2;
}

static int64_t peak_int8(int64_t rounds, const float* in, float* out) {
  VecI acc[kPeakChains];
  for (int i = 0; i < kPeakChains; ++i) acc[i] = splat_int(i);
  const Bytes w = load_bytes(reinterpret_cast<const uint8_t*>(in));
  const Quad a = splat_quad(reinterpret_cast<const int8_t*>(in));
  peak_rounds(rounds, acc, w, a, [](VecI c, Bytes x, Quad y) { return dot_u8s8<false>(c, x, y); });
  for (int i = 1; i < kPeakChains; ++i) acc[0] = add_int(acc[0], acc[i]);
  store(out, to_float(acc[0]));
  return rounds * kPeakChains * 16 * 4 * 2;
}
