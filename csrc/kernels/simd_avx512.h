// Sixteen floats in one AVX-512 register. Included inside a tier's namespace; see simd.h.

// What 32 registers hold: rows of activations of a GEMM call, and panels beside them.
constexpr int kDenseRows = 8, kInt8Rows = 8, kGroupedRows = 4, kPanelsAtOnce = 2;
// Of attention: query rows of a pass, and vectors of keys or channels beside R rows. int8 needs two
// accumulators each, fp8 room to be decoded.
constexpr int kRowsPerPass = 6;
constexpr int vectors_per_pass(KvFormat format, int rows) {
  return rows > 3 && (format == KvFormat::kInt8 || format == KvFormat::kFp8) ? 2 : 4;
}

struct VecF {
  __m512 v;
};
struct VecI {
  __m512i v;
};

static inline VecF load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, VecF a) { _mm512_storeu_ps(p, a.v); }
static inline VecF splat(float x) { return {_mm512_set1_ps(x)}; }
static inline VecF zero() { return {_mm512_setzero_ps()}; }
static inline VecF add(VecF a, VecF b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline VecF sub(VecF a, VecF b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline VecF mul(VecF a, VecF b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline VecF div(VecF a, VecF b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline VecF fma(VecF a, VecF b, VecF c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline VecF vmax(VecF a, VecF b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline VecF vmin(VecF a, VecF b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline VecF vabs(VecF a) { return {_mm512_abs_ps(a.v)}; }
static inline VecF round_even(VecF a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline VecI to_int(VecF a) { return {_mm512_cvtps_epi32(a.v)}; }
static inline VecF to_float(VecI a) { return {_mm512_cvtepi32_ps(a.v)}; }
static inline VecI splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
static inline VecI add_int(VecI a, VecI b) { return {_mm512_add_epi32(a.v, b.v)}; }
static inline VecI shift_left_8(VecI a) { return {_mm512_slli_epi32(a.v, 8)}; }
static inline VecI shift_right_8(VecI a) { return {_mm512_srli_epi32(a.v, 8)}; }
// a * 2^n for whole numbers n.
static inline VecF times_pow2(VecF a, VecF n) { return {_mm512_scalef_ps(a.v, n.v)}; }
// Whether any lane is greater than the bound, or NaN.
static inline bool any_above(VecF a, float bound) {
  return _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(bound), _CMP_NLE_UQ) != 0;
}
// Lanes of a where x > bound; others become 0.
static inline VecF keep_above(VecF a, VecF x, float bound) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_GT_OQ), a.v)};
}
// Lanes whose index is outside [lo, hi) become `other`.
static inline VecF keep_lanes(VecF a, int lo, int hi, float other) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 in = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo)) &
                       _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(hi));
  return {_mm512_mask_blend_ps(in, _mm512_set1_ps(other), a.v)};
}
// The first lane that equals x; 16 if none does.
static inline int lane_of(VecF a, float x) {
  return __builtin_ctz(_mm512_cmp_ps_mask(a.v, _mm512_set1_ps(x), _CMP_EQ_OQ) | 0x10000u);
}
// Lane `i` of a, below 16.
static inline float lane(VecF a, int i) {
  return _mm512_cvtss_f32(_mm512_maskz_compress_ps(static_cast<__mmask16>(1u << i), a.v));
}
// a, but 0 in lane `lane`, below 16.
static inline VecF zero_lane(VecF a, int lane) {
  return {_mm512_maskz_mov_ps(static_cast<__mmask16>(~(1u << lane)), a.v)};
}
static inline VecF load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
static inline VecF load_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}
static inline void store_bf16(uint16_t* p, VecF a) {
  const __m256bh h = _mm512_cvtneps_pbh(a.v);
  __builtin_memcpy(p, &h, 32);
}
static inline float first_lane(VecF a) { return _mm512_cvtss_f32(a.v); }
static inline void store_i8(int8_t* p, VecI a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}
// Sum of 16 signed bytes.
static inline int32_t sum_i8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}
static inline void store_low_bytes(uint8_t* p, VecI a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
static inline void store_i32(int32_t* p, VecI a) { _mm512_storeu_si512(p, a.v); }

// Sums and maxima across lanes by one tree on every tier: lane i with i + 8, then + 4, + 2, + 1.
static inline float reduce_sum(VecF a) {
  const __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float reduce_max(VecF a) {
  const __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
static inline int32_t reduce_sum_int(VecI a) { return _mm512_reduce_add_epi32(a.v); }

// Dot products of 4 unsigned weight bytes with 4 signed activation bytes, one per lane, added to
// acc. Inline assembly: with the intrinsic g++ 12 spills the accumulators of an unrolled tile.
struct Bytes {
  __m512i v;
};
// A line that several dot products use. g++ 12 would load it again for each of them, and loads are
// what limits the tiles; after this it does not know that the register still is what memory holds.
static inline __m512i load_line(const void* p) {
  __m512i line = _mm512_load_si512(p);
  asm("" : "+v"(line));
  return line;
}
static inline Bytes load_bytes(const uint8_t* p) { return {load_line(p)}; }
static inline Bytes low_nibbles(Bytes a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(0x0f))}; }
static inline Bytes high_nibbles(Bytes a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(0x0f))};
}
// Bits `shift` .. of each 4-byte lane of a line, under a mask, as floats.
static inline VecF lane_bits(const uint8_t* line, int shift, int mask) {
  const __m512i bits = _mm512_srl_epi32(_mm512_load_si512(line), _mm_cvtsi32_si128(shift));
  return {_mm512_cvtepi32_ps(_mm512_and_si512(bits, _mm512_set1_epi32(mask)))};
}
// Dot products take bytes as they are; see load_unsigned.
constexpr int kUnsignedShift = 0, kSignedShift = 0;
static inline Bytes flip_signs(Bytes a) { return a; }
struct Quad {  // 4 activation bytes, in every lane
  __m512i v;
};
static inline Quad splat_quad(const int8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm512_set1_epi32(x)};
}
template <bool kSmall>
static inline VecI dot_u8s8(VecI acc, Bytes w, Quad a) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(a.v));
  return acc;
}

// The same with signed bytes in the line and unsigned ones in every lane.
struct UnsignedQuad {
  __m512i v;
};
static inline UnsignedQuad splat_unsigned_quad(const uint8_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm512_set1_epi32(x)};
}
static inline VecI dot_s8u8(VecI acc, Bytes v, UnsignedQuad a) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(a.v), "v"(v.v));
  return acc;
}

// Pairs of bfloat16: acc += w[2i] * a[0] + w[2i + 1] * a[1] in each lane i.
struct Pairs {
  __m512i v;
};
static inline Pairs load_pairs(const void* p) { return {load_line(p)}; }
static inline Pairs splat_pair(const uint16_t* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return {_mm512_set1_epi32(x)};
}
// Bytes of FP8 E4M3: of each lane the bytes 0 and 2 become a pair of bfloat16, 1 and 3 another.
static inline Pairs fp8_high_bytes(__m512i x) {
  const __m512i subnormal = _mm512_castsi128_si512(
      _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  __m512i m = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi16(0x07f0));
  m = _mm512_add_epi16(m, _mm512_set1_epi16(120 << 7));
  m = _mm512_mask_permutexvar_epi16(m, _mm512_testn_epi16_mask(x, _mm512_set1_epi16(0x7800)),
                                    _mm512_srli_epi16(x, 8), subnormal);
  const __m512i past_largest = _mm512_set1_epi16(0x07f0 + (120 << 7));
  m = _mm512_mask_mov_epi16(m, _mm512_cmpeq_epi16_mask(m, past_largest), _mm512_set1_epi16(0x7fc0));
  // m, with the sign of x: (x & 0x8000) | m
  return {_mm512_ternarylogic_epi32(x, _mm512_set1_epi16(static_cast<int16_t>(0x8000)), m, 0xea)};
}
static inline void load_fp8(const uint8_t* line, Pairs* first, Pairs* second) {
  const __m512i x = _mm512_load_si512(line);
  *first = fp8_high_bytes(_mm512_slli_epi16(x, 8));
  *second = fp8_high_bytes(x);
}
static inline VecF dot_bf16(VecF acc, Pairs w, Pairs a) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(a.v));
  return acc;
}
// As in simd.h. Sums are made of what is in registers: reading it back would wait for the store.
static inline VecF store_and_sum_bf16(uint16_t* to, const float* from, int n, Pairs one) {
  VecF sum = zero();
  _Pragma("GCC unroll 8") for (int i = 0; i < n; i += 32) {
    const __m512bh pairs = _mm512_cvtne2ps_pbh(load(from + i + 16).v, load(from + i).v);
    __m512i w;
    __builtin_memcpy(&w, &pairs, 64);
    _mm512_store_si512(to + i, w);
    sum = dot_bf16(sum, {w}, one);
  }
  return sum;
}
