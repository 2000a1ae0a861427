// Sixteen floats as plain loops, for any processor. Included inside a tier's namespace; see simd.h.

// Rows of activations of a GEMM call, and panels beside them.
constexpr int kDenseRows = 4, kInt8Rows = 4, kGroupedRows = 4, kPanelsAtOnce = 2;
constexpr int kRowsPerPass = 6;
constexpr int vectors_per_pass(KvFormat format, int rows) {
  return rows > 3 && (format == KvFormat::kInt8 || format == KvFormat::kFp8) ? 2 : 4;
}

struct VecF {
  float v[16];
};
struct VecI {
  int32_t v[16];
};

#define OCTAVO_LANES for (int i = 0; i < 16; ++i)

static inline VecF load(const float* p) {
  VecF r;
  OCTAVO_LANES r.v[i] = p[i];
  return r;
}
static inline void store(float* p, VecF a) { OCTAVO_LANES p[i] = a.v[i]; }
static inline VecF splat(float x) {
  VecF r;
  OCTAVO_LANES r.v[i] = x;
  return r;
}
static inline VecF zero() { return splat(0.0f); }
static inline VecF add(VecF a, VecF b) {
  OCTAVO_LANES a.v[i] += b.v[i];
  return a;
}
static inline VecF sub(VecF a, VecF b) {
  OCTAVO_LANES a.v[i] -= b.v[i];
  return a;
}
static inline VecF mul(VecF a, VecF b) {
  OCTAVO_LANES a.v[i] *= b.v[i];
  return a;
}
static inline VecF div(VecF a, VecF b) {
  OCTAVO_LANES a.v[i] /= b.v[i];
  return a;
}
// Two roundings: without the instruction a fused one would be a library call per lane.
static inline VecF fma(VecF a, VecF b, VecF c) {
  OCTAVO_LANES c.v[i] = a.v[i] * b.v[i] + c.v[i];
  return c;
}
static inline VecF vmax(VecF a, VecF b) {
  OCTAVO_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline VecF vmin(VecF a, VecF b) {
  OCTAVO_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline VecF vabs(VecF a) {
  OCTAVO_LANES a.v[i] = __builtin_fabsf(a.v[i]);
  return a;
}
static inline VecF round_even(VecF a) {
  // Adding 1.5 * 2^23 leaves no fraction bits; exact for |x| < 2^22, which all callers keep to.
  OCTAVO_LANES a.v[i] = (a.v[i] + 12582912.0f) - 12582912.0f;
  return a;
}
static inline VecI to_int(VecF a) {
  VecI r;
  a = round_even(a);
  OCTAVO_LANES r.v[i] = static_cast<int32_t>(a.v[i]);
  return r;
}
static inline VecF to_float(VecI a) {
  VecF r;
  OCTAVO_LANES r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
static inline VecI splat_int(int32_t x) {
  VecI r;
  OCTAVO_LANES r.v[i] = x;
  return r;
}
static inline uint32_t float_bits(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}
static inline float bits_float(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
static inline VecI add_int(VecI a, VecI b) {
  OCTAVO_LANES a.v[i] += b.v[i];
  return a;
}
static inline VecI shift_left_8(VecI a) {
  OCTAVO_LANES a.v[i] *= 256;
  return a;
}
static inline VecI shift_right_8(VecI a) {
  OCTAVO_LANES a.v[i] >>= 8;
  return a;
}
// a * 2^n for whole numbers n and a near 1; n counts as 127 above that, and below -126 it is 0.
static inline VecF times_pow2(VecF a, VecF n) {
  OCTAVO_LANES {
    const uint32_t power =
        static_cast<uint32_t>(static_cast<int32_t>(n.v[i] < 127.0f ? n.v[i] : 127.0f));  // NaN: 127
    a.v[i] = n.v[i] < -126.0f ? 0.0f : bits_float(float_bits(a.v[i]) + (power << 23));
  }
  return a;
}
static inline VecF keep_above(VecF a, VecF x, float bound) {
  OCTAVO_LANES a.v[i] = x.v[i] > bound ? a.v[i] : 0.0f;
  return a;
}
static inline bool any_above(VecF a, float bound) {
  bool above = false;
  OCTAVO_LANES above |= !(a.v[i] <= bound);
  return above;
}
static inline VecF keep_lanes(VecF a, int lo, int hi, float other) {
  OCTAVO_LANES a.v[i] = i >= lo && i < hi ? a.v[i] : other;
  return a;
}
static inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_float(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // Shift into place and correct the exponent by a multiplication, which also normalises
  // subnormals.
  const float value = bits_float(magnitude << 13) * 0x1p112f;
  return bits_float(sign | float_bits(value));
}
// The first lane that equals x; 16 if none does.
static inline int lane_of(VecF a, float x) {
  int lane = 0;
  while (lane < 16 && a.v[lane] != x) ++lane;
  return lane;
}
// Lane `i` of a, below 16.
static inline float lane(VecF a, int i) { return a.v[i]; }
// a, but 0 in lane `lane`, below 16.
static inline VecF zero_lane(VecF a, int lane) {
  a.v[lane] = 0.0f;
  return a;
}
static inline VecF load_f16(const uint16_t* p) {
  VecF r;
  OCTAVO_LANES r.v[i] = half_to_float(p[i]);
  return r;
}
static inline VecF load_bf16(const uint16_t* p) {
  VecF r;
  OCTAVO_LANES r.v[i] = bits_float(static_cast<uint32_t>(p[i]) << 16);
  return r;
}
static inline void store_bf16(uint16_t* p, VecF a) {  // nearest even, finite input
  OCTAVO_LANES {
    const uint32_t u = float_bits(a.v[i]);
    p[i] = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
}
static inline float first_lane(VecF a) { return a.v[0]; }
static inline void store_i8(int8_t* p, VecI a) { OCTAVO_LANES p[i] = static_cast<int8_t>(a.v[i]); }
// Sum of 16 signed bytes.
static inline int32_t sum_i8(const int8_t* p) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += p[i];
  return sum;
}
static inline void store_low_bytes(uint8_t* p, VecI a) {
  OCTAVO_LANES p[i] = static_cast<uint8_t>(a.v[i]);
}
static inline void store_i32(int32_t* p, VecI a) { OCTAVO_LANES p[i] = a.v[i]; }

// Sums and maxima across lanes by one tree on every tier: lane i with i + 8, then + 4, + 2, + 1.
static inline float reduce_sum(VecF a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
  }
  return a.v[0];
}
static inline float reduce_max(VecF a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] > a.v[i + width] ? a.v[i] : a.v[i + width];
  }
  return a.v[0];
}
static inline int32_t reduce_sum_int(VecI a) {
  int32_t sum = 0;
  OCTAVO_LANES sum += a.v[i];
  return sum;
}

struct Bytes {
  uint8_t v[64];
};
static inline Bytes load_bytes(const uint8_t* p) {
  Bytes r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
static inline Bytes low_nibbles(Bytes a) {
  for (int i = 0; i < 64; ++i) a.v[i] &= 0x0f;
  return a;
}
static inline Bytes high_nibbles(Bytes a) {
  for (int i = 0; i < 64; ++i) a.v[i] >>= 4;
  return a;
}
static inline VecF lane_bits(const uint8_t* line, int shift, int mask) {
  VecF r;
  OCTAVO_LANES {
    uint32_t lane;
    __builtin_memcpy(&lane, line + 4 * i, 4);
    r.v[i] = static_cast<float>(static_cast<int>(lane >> shift) & mask);
  }
  return r;
}
struct Quad {
  int8_t v[4];
};
static inline Quad splat_quad(const int8_t* p) {
  Quad r;
  __builtin_memcpy(r.v, p, 4);
  return r;
}
template <bool kNibble>
static inline VecI dot_u8s8(VecI acc, Bytes w, Quad a) {
  OCTAVO_LANES {
    acc.v[i] += w.v[4 * i] * a.v[0] + w.v[4 * i + 1] * a.v[1] + w.v[4 * i + 2] * a.v[2] +
                w.v[4 * i + 3] * a.v[3];
  }
  return acc;
}

struct UnsignedQuad {
  uint8_t v[4];
};
static inline UnsignedQuad splat_unsigned_quad(const uint8_t* p) {
  UnsignedQuad r;
  __builtin_memcpy(r.v, p, 4);
  return r;
}
static inline VecI dot_s8u8(VecI acc, Bytes v, UnsignedQuad a) {
  OCTAVO_LANES {
    for (int j = 0; j < 4; ++j) acc.v[i] += static_cast<int8_t>(v.v[4 * i + j]) * a.v[j];
  }
  return acc;
}

struct Pairs {
  uint32_t v[16];
};
static inline Pairs load_pairs(const void* p) {
  Pairs r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
static inline Pairs splat_pair(const uint16_t* p) {
  uint32_t x;
  __builtin_memcpy(&x, p, 4);
  Pairs r;
  OCTAVO_LANES r.v[i] = x;
  return r;
}
// Bytes of FP8 E4M3: of each lane the bytes 0 and 2 become a pair of bfloat16, 1 and 3 another.
static inline void load_fp8(const uint8_t* line, Pairs* first, Pairs* second) {
  OCTAVO_LANES {
    const uint8_t* lane = line + 4 * i;
    first->v[i] = e4m3_to_bf16(lane[0]) | static_cast<uint32_t>(e4m3_to_bf16(lane[2])) << 16;
    second->v[i] = e4m3_to_bf16(lane[1]) | static_cast<uint32_t>(e4m3_to_bf16(lane[3])) << 16;
  }
}
static inline VecF dot_bf16(VecF acc, Pairs w, Pairs a) {
  OCTAVO_LANES {
    acc.v[i] += bits_float(w.v[i] << 16) * bits_float(a.v[i] << 16);
    acc.v[i] += bits_float(w.v[i] & 0xffff0000u) * bits_float(a.v[i] & 0xffff0000u);
  }
  return acc;
}
#undef OCTAVO_LANES
