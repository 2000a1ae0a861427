// Sixteen floats in two AVX2 registers. Included inside a tier's namespace; see simd.h.

// What 16 registers hold: rows of activations of a GEMM call, and panels beside them.
constexpr int kDenseRows = 4, kInt8Rows = 2, kGroupedRows = 2, kPanelsAtOnce = 1;
// Of attention: query rows of a pass, and vectors of keys or channels beside R rows.
constexpr int kRowsPerPass = 2;
constexpr int vectors_per_pass(KvFormat format, int) { return format == KvFormat::kF32 ? 2 : 1; }

struct VecF {
  __m256 lo, hi;
};
struct VecI {
  __m256i lo, hi;
};

static inline VecF load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, VecF a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
static inline VecF splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline VecF zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline VecF add(VecF a, VecF b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline VecF sub(VecF a, VecF b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline VecF mul(VecF a, VecF b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline VecF div(VecF a, VecF b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline VecF fma(VecF a, VecF b, VecF c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline VecF vmax(VecF a, VecF b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline VecF vmin(VecF a, VecF b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline VecF vabs(VecF a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
static inline VecF round_even(VecF a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
static inline VecI to_int(VecF a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
static inline VecF to_float(VecI a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
static inline VecI splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline VecI add_int(VecI a, VecI b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static inline VecI shift_left_8(VecI a) {
  return {_mm256_slli_epi32(a.lo, 8), _mm256_slli_epi32(a.hi, 8)};
}
static inline VecI shift_right_8(VecI a) {
  return {_mm256_srli_epi32(a.lo, 8), _mm256_srli_epi32(a.hi, 8)};
}
// a * 2^n for whole numbers n and a near 1; n counts as 127 above that, and below -126 it is 0.
static inline __m256 times_pow2_half(__m256 a, __m256 n) {
  const __m256i bits =
      _mm256_slli_epi32(_mm256_cvtps_epi32(_mm256_min_ps(_mm256_set1_ps(127.0f), n)), 23);
  const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), bits));
  return _mm256_and_ps(scaled, _mm256_cmp_ps(n, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ));
}
static inline VecF times_pow2(VecF a, VecF n) {
  return {times_pow2_half(a.lo, n.lo), times_pow2_half(a.hi, n.hi)};
}
static inline bool any_above(VecF a, float bound) {
  const __m256 b = _mm256_set1_ps(bound);
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a.lo, b, _CMP_NLE_UQ),
                                         _mm256_cmp_ps(a.hi, b, _CMP_NLE_UQ))) != 0;
}
static inline VecF keep_above(VecF a, VecF x, float bound) {
  const __m256 b = _mm256_set1_ps(bound);
  return {_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, b, _CMP_GT_OQ)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, b, _CMP_GT_OQ))};
}
static inline __m256 keep_lanes8(__m256 a, __m256i lane, int lo, int hi, float other) {
  const __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane),
                                         _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
  return _mm256_blendv_ps(_mm256_set1_ps(other), a, _mm256_castsi256_ps(in));
}
static inline VecF keep_lanes(VecF a, int lo, int hi, float other) {
  return {keep_lanes8(a.lo, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), lo, hi, other),
          keep_lanes8(a.hi, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), lo, hi, other)};
}
// The first lane that equals x; 16 if none does.
static inline int lane_of(VecF a, float x) {
  const __m256 b = _mm256_set1_ps(x);
  const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b, _CMP_EQ_OQ));
  const int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b, _CMP_EQ_OQ));
  return __builtin_ctz(static_cast<unsigned>(lo | hi << 8) | 0x10000u);
}
// Lane `i` of a, below 16.
static inline float lane(VecF a, int i) {
  alignas(32) float lanes[16];
  _mm256_store_ps(lanes, a.lo);
  _mm256_store_ps(lanes + 8, a.hi);
  return lanes[i];
}
// a, but 0 in lane `lane`, below 16.
static inline VecF zero_lane(VecF a, int lane) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto without = [&](__m256 v, int at) {
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(index, _mm256_set1_epi32(at))),
                            v);
  };
  return {without(a.lo, lane), without(a.hi, lane - 8)};
}
static inline VecF load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
static inline __m256 bf16_to_float(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline VecF load_bf16(const uint16_t* p) {
  return {bf16_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          bf16_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
static inline __m256i round_to_bf16(__m256 a) {  // nearest even, finite input
  const __m256i x = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))),
                           16);
}
static inline void store_bf16(uint16_t* p, VecF a) {
  const __m256i packed = _mm256_packus_epi32(round_to_bf16(a.lo), round_to_bf16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
static inline void store_i32(int32_t* p, VecI a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
static inline float first_lane(VecF a) { return _mm256_cvtss_f32(a.lo); }
static inline void store_i8(int8_t* p, VecI a) {
  alignas(32) int32_t x[16];
  store_i32(x, a);
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(x[i]);
}

// Sum of 16 signed bytes.
static inline int32_t sum_i8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}
static inline void store_low_bytes(uint8_t* p, VecI a) {
  alignas(32) int32_t x[16];
  store_i32(x, a);
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint8_t>(x[i]);
}

// Sums and maxima across lanes by one tree on every tier: lane i with i + 8, then + 4, + 2, + 1.
static inline float reduce_sum(VecF a) {
  const __m256 x = _mm256_add_ps(a.lo, a.hi);
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float reduce_max(VecF a) {
  const __m256 x = _mm256_max_ps(a.lo, a.hi);
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
static inline int32_t reduce_sum_int(VecI a) {
  const __m256i x = _mm256_add_epi32(a.lo, a.hi);
  __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

struct Bytes {
  __m256i lo, hi;
};
static inline Bytes load_bytes(const uint8_t* p) {
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
static inline Bytes low_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(0x0f);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
static inline Bytes high_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(0x0f);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
static inline VecF lane_bits(const uint8_t* line, int shift, int mask) {
  const __m128i count = _mm_cvtsi32_si128(shift);
  const __m256i keep = _mm256_set1_epi32(mask);
  const Bytes b = load_bytes(line);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(b.lo, count), keep)),
          _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(b.hi, count), keep))};
}
struct Quad {
  __m256i v;
};
static inline Quad splat_quad(const int8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm256_set1_epi32(x)};
}
// vpmaddubsw adds two products in 16 bits, which is exact for small bytes, below 128 (127 * 127 *
// 2). Others are read as signed: the sign of one side goes to the other (128 * 127 * 2 still fits).
constexpr int kUnsignedShift = 128, kSignedShift = 0;
static inline Bytes flip_signs(Bytes a) {
  const __m256i top = _mm256_set1_epi8(-128);
  return {_mm256_xor_si256(a.lo, top), _mm256_xor_si256(a.hi, top)};
}
template <bool kSmall>
static inline __m256i dot_half(__m256i acc, __m256i w, __m256i a) {
  const __m256i products = kSmall
                               ? _mm256_maddubs_epi16(w, a)
                               : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}
template <bool kSmall>
static inline VecI dot_u8s8(VecI acc, Bytes w, Quad a) {
  return {dot_half<kSmall>(acc.lo, w.lo, a.v), dot_half<kSmall>(acc.hi, w.hi, a.v)};
}

struct UnsignedQuad {
  __m256i v;
};
static inline UnsignedQuad splat_unsigned_quad(const uint8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm256_set1_epi32(x)};
}
// Bytes of 8 bits on both sides are widened to 16 first: even and odd ones of each lane.
static inline __m256i dot_widened(__m256i acc, __m256i v, __m256i a) {
  const __m256i v_even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
  const __m256i v_odd = _mm256_srai_epi16(v, 8);
  const __m256i a_even = _mm256_and_si256(a, _mm256_set1_epi16(0x00ff));
  const __m256i a_odd = _mm256_srli_epi16(a, 8);
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(v_even, a_even));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(v_odd, a_odd));
}
static inline VecI dot_s8u8(VecI acc, Bytes v, UnsignedQuad a) {
  return {dot_widened(acc.lo, v.lo, a.v), dot_widened(acc.hi, v.hi, a.v)};
}

struct Pairs {
  __m256i lo, hi;
};
static inline Pairs load_pairs(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_load_si256(q), _mm256_load_si256(q + 1)};
}
static inline Pairs splat_pair(const uint16_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
// Bytes of FP8 E4M3: of each lane the bytes 0 and 2 become a pair of bfloat16, 1 and 3 another.
static inline __m256i fp8_high_bytes(__m256i x) {
  // Low bytes of the subnormal numbers 0 .. 7 / 512, then the high ones.
  const __m256i subnormal = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      0, 0, -128, -64, 0, 0x20, 0x40, 0x60, 0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c));
  __m256i m = _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi16(0x07f0));
  m = _mm256_add_epi16(m, _mm256_set1_epi16(120 << 7));
  const __m256i code = _mm256_and_si256(_mm256_srli_epi16(x, 8), _mm256_set1_epi16(7));
  const __m256i at =
      _mm256_or_si256(_mm256_or_si256(code, _mm256_slli_epi16(code, 8)), _mm256_set1_epi16(0x0800));
  const __m256i is_subnormal =
      _mm256_cmpeq_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7800)), _mm256_setzero_si256());
  m = _mm256_blendv_epi8(m, _mm256_shuffle_epi8(subnormal, at), is_subnormal);
  const __m256i past_largest = _mm256_set1_epi16(0x07f0 + (120 << 7));
  m = _mm256_blendv_epi8(m, _mm256_set1_epi16(0x7fc0), _mm256_cmpeq_epi16(m, past_largest));
  const __m256i sign = _mm256_set1_epi16(static_cast<int16_t>(0x8000));
  return _mm256_or_si256(_mm256_and_si256(x, sign), m);
}
static inline void load_fp8(const uint8_t* line, Pairs* first, Pairs* second) {
  const Bytes x = load_bytes(line);
  *first = {fp8_high_bytes(_mm256_slli_epi16(x.lo, 8)), fp8_high_bytes(_mm256_slli_epi16(x.hi, 8))};
  *second = {fp8_high_bytes(x.lo), fp8_high_bytes(x.hi)};
}
static inline __m256 dot_bf16_half(__m256 acc, __m256i w, __m256i a) {
  const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000));
  const __m256 w0 = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
  const __m256 a0 = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
  const __m256 w1 = _mm256_castsi256_ps(_mm256_and_si256(w, high));
  const __m256 a1 = _mm256_castsi256_ps(_mm256_and_si256(a, high));
  return _mm256_fmadd_ps(w1, a1, _mm256_fmadd_ps(w0, a0, acc));
}
static inline VecF dot_bf16(VecF acc, Pairs w, Pairs a) {
  return {dot_bf16_half(acc.lo, w.lo, a.lo), dot_bf16_half(acc.hi, w.hi, a.hi)};
}
