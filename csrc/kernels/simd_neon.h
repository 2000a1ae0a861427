// Sixteen floats in four NEON registers. Included inside a tier's namespace; see simd.h.

// What 32 registers hold: rows of activations of a GEMM call, and panels beside them.
constexpr int kDenseRows = 4, kInt8Rows = 4, kGroupedRows = 2, kPanelsAtOnce = 1;
// Of attention: query rows of a pass, and vectors of keys or channels beside R rows.
constexpr int kRowsPerPass = 3;
constexpr int vectors_per_pass(KvFormat, int) { return 1; }

struct VecF {
  float32x4_t v[4];
};
struct VecI {
  int32x4_t v[4];
};

// {fn(0), fn(1), fn(2), fn(3)}: the same for each register.
template <class V = VecF, class Fn>
static inline V each(Fn fn) {
  return {{fn(0), fn(1), fn(2), fn(3)}};
}

static inline VecF load(const float* p) {
  return each([=](int i) { return vld1q_f32(p + 4 * i); });
}
static inline void store(float* p, VecF a) {
  vst1q_f32(p, a.v[0]);
  vst1q_f32(p + 4, a.v[1]);
  vst1q_f32(p + 8, a.v[2]);
  vst1q_f32(p + 12, a.v[3]);
}
static inline VecF splat(float x) {
  return each([=](int) { return vdupq_n_f32(x); });
}
static inline VecF zero() { return splat(0.0f); }
static inline VecF add(VecF a, VecF b) {
  return each([=](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
static inline VecF sub(VecF a, VecF b) {
  return each([=](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
static inline VecF mul(VecF a, VecF b) {
  return each([=](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
static inline VecF div(VecF a, VecF b) {
  return each([=](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
static inline VecF fma(VecF a, VecF b, VecF c) {
  return each([=](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
// Not vmaxq and vminq: those give NaN for NaN, here b is kept as on every tier.
static inline float32x4_t max4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline float32x4_t min4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
static inline VecF vmax(VecF a, VecF b) {
  return each([=](int i) { return max4(a.v[i], b.v[i]); });
}
static inline VecF vmin(VecF a, VecF b) {
  return each([=](int i) { return min4(a.v[i], b.v[i]); });
}
static inline VecF vabs(VecF a) {
  return each([=](int i) { return vabsq_f32(a.v[i]); });
}
static inline VecF round_even(VecF a) {
  return each([=](int i) { return vrndnq_f32(a.v[i]); });
}
static inline VecI to_int(VecF a) {
  return each<VecI>([=](int i) { return vcvtnq_s32_f32(a.v[i]); });
}
static inline VecF to_float(VecI a) {
  return each([=](int i) { return vcvtq_f32_s32(a.v[i]); });
}
static inline VecI splat_int(int32_t x) {
  return each<VecI>([=](int) { return vdupq_n_s32(x); });
}
static inline VecI add_int(VecI a, VecI b) {
  return each<VecI>([=](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
static inline VecI shift_left_8(VecI a) {
  return each<VecI>([=](int i) { return vshlq_n_s32(a.v[i], 8); });
}
static inline VecI shift_right_8(VecI a) {
  return each<VecI>([=](int i) { return vshrq_n_s32(a.v[i], 8); });
}
// a * 2^n for whole numbers n and a near 1; n counts as 127 above that, and below -126 it is 0.
static inline VecF times_pow2(VecF a, VecF n) {
  return each([=](int i) {
    // NaN becomes 0, so that a, which then is NaN too, stays as it is.
    const int32x4_t power = vcvtnq_s32_f32(min4(vdupq_n_f32(127.0f), n.v[i]));
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(a.v[i]), vshlq_n_s32(power, 23));
    const uint32x4_t is_zero = vcltq_f32(n.v[i], vdupq_n_f32(-126.0f));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), is_zero));
  });
}
static inline VecF keep_above(VecF a, VecF x, float bound) {
  return each([=](int i) {
    const uint32x4_t above = vcgtq_f32(x.v[i], vdupq_n_f32(bound));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.v[i]), above));
  });
}
static inline bool any_above(VecF a, float bound) {
  const auto within = [=](int i) { return vcleq_f32(a.v[i], vdupq_n_f32(bound)); };
  const uint32x4_t all =
      vandq_u32(vandq_u32(within(0), within(1)), vandq_u32(within(2), within(3)));
  return vminvq_u32(all) == 0;
}
static inline int32x4_t lane_index(int i) {
  const int32_t first[4] = {0, 1, 2, 3};
  return vaddq_s32(vld1q_s32(first), vdupq_n_s32(4 * i));
}
static inline VecF keep_lanes(VecF a, int lo, int hi, float other) {
  return each([=](int i) {
    const uint32x4_t in = vandq_u32(vcgeq_s32(lane_index(i), vdupq_n_s32(lo)),
                                    vcltq_s32(lane_index(i), vdupq_n_s32(hi)));
    return vbslq_f32(in, a.v[i], vdupq_n_f32(other));
  });
}
// The low byte of each lane.
static inline uint8x16_t low_bytes(VecI a) {
  const auto bytes = [=](int i) { return vreinterpretq_u8_s32(a.v[i]); };
  // Every second byte, twice.
  return vuzp1q_u8(vuzp1q_u8(bytes(0), bytes(1)), vuzp1q_u8(bytes(2), bytes(3)));
}
// The first lane that equals x; 16 if none does.
static inline int lane_of(VecF a, float x) {
  const uint8x16_t equal = low_bytes(
      each<VecI>([=](int i) { return vreinterpretq_s32_u32(vceqq_f32(a.v[i], vdupq_n_f32(x))); }));
  const uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(equal), 4);  // 4 bits a lane
  const uint64_t bits = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
  return bits == 0 ? 16 : __builtin_ctzll(bits) / 4;
}
// Lane `i` of a, below 16.
static inline float lane(VecF a, int i) {
  float lanes[16];
  store(lanes, a);
  return lanes[i];
}
// a, but 0 in lane `lane`, below 16.
static inline VecF zero_lane(VecF a, int lane) {
  return each([=](int i) {
    const uint32x4_t at = vceqq_s32(lane_index(i), vdupq_n_s32(lane));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a.v[i]), at));
  });
}
static inline VecF load_f16(const uint16_t* p) {
  return each([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
static inline VecF load_bf16(const uint16_t* p) {
  return each([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
static inline uint16x4_t round_to_bf16(float32x4_t a) {  // nearest even, finite input
  const uint32x4_t x = vreinterpretq_u32_f32(a);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(x, 16), vdupq_n_u32(1));
  return vshrn_n_u32(vaddq_u32(x, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
}
static inline void store_bf16(uint16_t* p, VecF a) {
  vst1q_u16(p, vcombine_u16(round_to_bf16(a.v[0]), round_to_bf16(a.v[1])));
  vst1q_u16(p + 8, vcombine_u16(round_to_bf16(a.v[2]), round_to_bf16(a.v[3])));
}
static inline void store_i32(int32_t* p, VecI a) {
  vst1q_s32(p, a.v[0]);
  vst1q_s32(p + 4, a.v[1]);
  vst1q_s32(p + 8, a.v[2]);
  vst1q_s32(p + 12, a.v[3]);
}
static inline float first_lane(VecF a) { return vgetq_lane_f32(a.v[0], 0); }
static inline void store_i8(int8_t* p, VecI a) { vst1q_s8(p, vreinterpretq_s8_u8(low_bytes(a))); }
// Sum of 16 signed bytes.
static inline int32_t sum_i8(const int8_t* p) { return vaddlvq_s8(vld1q_s8(p)); }
static inline void store_low_bytes(uint8_t* p, VecI a) { vst1q_u8(p, low_bytes(a)); }

// Sums and maxima across lanes by one tree on every tier: lane i with i + 8, then + 4, + 2, + 1.
static inline float reduce_sum(VecF a) {
  const float32x4_t x = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(x), vget_high_f32(x)));
}
static inline float reduce_max(VecF a) {
  const float32x4_t x = max4(max4(a.v[0], a.v[2]), max4(a.v[1], a.v[3]));
  const float32x4_t y = max4(x, vextq_f32(x, x, 2));
  const float first = vgetq_lane_f32(y, 0), second = vgetq_lane_f32(y, 1);
  return first > second ? first : second;
}
static inline int32_t reduce_sum_int(VecI a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}

struct Bytes {
  uint8x16_t v[4];
};
static inline Bytes load_bytes(const uint8_t* p) {
  return each<Bytes>([=](int i) { return vld1q_u8(p + 16 * i); });
}
static inline Bytes low_nibbles(Bytes a) {
  return each<Bytes>([=](int i) { return vandq_u8(a.v[i], vdupq_n_u8(0x0f)); });
}
static inline Bytes high_nibbles(Bytes a) {
  return each<Bytes>([=](int i) { return vshrq_n_u8(a.v[i], 4); });
}
static inline VecF lane_bits(const uint8_t* line, int shift, int mask) {
  const Bytes bytes = load_bytes(line);
  return each([=](int i) {
    const uint32x4_t bits = vshlq_u32(vreinterpretq_u32_u8(bytes.v[i]), vdupq_n_s32(-shift));
    return vcvtq_f32_u32(vandq_u32(bits, vdupq_n_u32(static_cast<uint32_t>(mask))));
  });
}
struct Quad {
  int8x16_t v;
};
static inline int32x4_t splat_four_bytes(const void* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return vdupq_n_s32(x);
}
static inline Quad splat_quad(const int8_t* p) {
  return {vreinterpretq_s8_s32(splat_four_bytes(p))};
}
struct UnsignedQuad {
  uint8x16_t v;
};
static inline UnsignedQuad splat_unsigned_quad(const uint8_t* p) {
  return {vreinterpretq_u8_s32(splat_four_bytes(p))};
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// usdot takes unsigned by signed bytes.
constexpr int kByteShift = 0;
static inline Bytes load_shifted(const uint8_t* p) { return load_bytes(p); }
template <bool kNibble>
static inline VecI dot_u8s8(VecI acc, Bytes w, Quad a) {
  return each<VecI>([=](int i) { return vusdotq_s32(acc.v[i], w.v[i], a.v); });
}
static inline VecI dot_s8u8(VecI acc, Bytes v, UnsignedQuad a) {
  return each<VecI>([=](int i) { return vusdotq_s32(acc.v[i], a.v, vreinterpretq_s8_u8(v.v[i])); });
}
#else
// sdot and udot take bytes of one kind: a line is moved into the kind of the other side.
constexpr int kByteShift = 128;
static inline Bytes load_shifted(const uint8_t* p) {
  return each<Bytes>([=](int i) { return veorq_u8(vld1q_u8(p + 16 * i), vdupq_n_u8(0x80)); });
}
template <bool kNibble>
static inline VecI dot_u8s8(VecI acc, Bytes w, Quad a) {  // nibbles are the same in both kinds
  return each<VecI>([=](int i) { return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(w.v[i]), a.v); });
}
static inline VecI dot_s8u8(VecI acc, Bytes v, UnsignedQuad a) {
  return each<VecI>([=](int i) {
    return vreinterpretq_s32_u32(vdotq_u32(vreinterpretq_u32_s32(acc.v[i]), v.v[i], a.v));
  });
}
#endif

struct Pairs {
  uint16x8_t v[4];
};
static inline Pairs load_pairs(const void* p) {
  const uint16_t* q = static_cast<const uint16_t*>(p);
  return each<Pairs>([=](int i) { return vld1q_u16(q + 8 * i); });
}
static inline Pairs splat_pair(const uint16_t* p) {
  const uint16x8_t x = vreinterpretq_u16_s32(splat_four_bytes(p));
  return each<Pairs>([=](int) { return x; });
}
// Bytes of FP8 E4M3: of each lane the bytes 0 and 2 become a pair of bfloat16, 1 and 3 another.
static inline uint16x8_t fp8_high_bytes(uint16x8_t x) {
  // Bytes 0 .. 7: high bytes of the subnormal numbers 0 .. 7 / 512; 8 .. 15: low ones.
  const uint8_t table[16] = {0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c,
                             0, 0,    0x80, 0xc0, 0,    0x20, 0x40, 0x60};
  const uint16x8_t m =
      vaddq_u16(vandq_u16(vshrq_n_u16(x, 4), vdupq_n_u16(0x07f0)), vdupq_n_u16(120 << 7));
  const uint16x8_t code = vandq_u16(vshrq_n_u16(x, 8), vdupq_n_u16(7));
  const uint16x8_t at = vorrq_u16(vsliq_n_u16(code, code, 8), vdupq_n_u16(0x0008));
  const uint16x8_t small =
      vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_u16(at)));
  const uint16x8_t is_normal = vtstq_u16(x, vdupq_n_u16(0x7800));
  const uint16x8_t is_nan = vceqq_u16(m, vdupq_n_u16(0x07f0 + (120 << 7)));
  const uint16x8_t magnitude =
      vbslq_u16(is_nan, vdupq_n_u16(0x7fc0), vbslq_u16(is_normal, m, small));
  return vbslq_u16(vdupq_n_u16(0x8000), x, magnitude);
}
static inline void load_fp8(const uint8_t* line, Pairs* first, Pairs* second) {
  const Pairs x = load_pairs(line);
  *first = each<Pairs>([=](int i) { return fp8_high_bytes(vshlq_n_u16(x.v[i], 8)); });
  *second = each<Pairs>([=](int i) { return fp8_high_bytes(x.v[i]); });
}
// Two fused multiply-adds, the first number of a pair and then the second.
#if defined(__ARM_FEATURE_BF16)
static inline VecF dot_bf16(VecF acc, Pairs w, Pairs a) {
  return each([=](int i) {
    const bfloat16x8_t x = vreinterpretq_bf16_u16(w.v[i]), y = vreinterpretq_bf16_u16(a.v[i]);
    return vbfmlaltq_f32(vbfmlalbq_f32(acc.v[i], x, y), x, y);
  });
}
#else
static inline float32x4_t first_of_pairs(uint16x8_t x) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(x), 16));
}
static inline float32x4_t second_of_pairs(uint16x8_t x) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u16(x), vdupq_n_u32(0xffff0000)));
}
static inline VecF dot_bf16(VecF acc, Pairs w, Pairs a) {
  return each([=](int i) {
    const float32x4_t sum = vfmaq_f32(acc.v[i], first_of_pairs(w.v[i]), first_of_pairs(a.v[i]));
    return vfmaq_f32(sum, second_of_pairs(w.v[i]), second_of_pairs(a.v[i]));
  });
}
#endif
