// The vector of a tier: 16 floats, 16 int32, and the dot products that the kernels are made of.
//
// This file is included by the one translation unit of each tier, inside that tier's namespace, and
// all it defines is static: an AVX-512 function must never be the copy that the linker keeps for
// everybody.
#if defined(OCTAVO_TIER_AVX512)
#include "kernels/simd_avx512.h"
#elif defined(OCTAVO_TIER_AVX2)
#include "kernels/simd_avx2.h"
#elif defined(OCTAVO_TIER_NEON)
#include "kernels/simd_neon.h"
#else
#include "kernels/simd_generic.h"
#endif

// A line for a dot product with bytes of the other kind. Where the instruction takes one kind only,
// unsigned bytes are read as u - kUnsignedShift, signed ones as s + kSignedShift, and whoever sums
// up their products begins with what that takes off.
static inline Bytes load_unsigned(const uint8_t* p) {
  return kUnsignedShift == 0 ? load_bytes(p) : flip_signs(load_bytes(p));
}
static inline Bytes load_signed(const uint8_t* p) {
  return kSignedShift == 0 ? load_bytes(p) : flip_signs(load_bytes(p));
}

#if !defined(OCTAVO_TIER_AVX512)
// n floats, a multiple of 32, to bfloat16. Returns the sums of what was stored, times `one`: lane i
// has those of the numbers 32 j + 2 i and 32 j + 2 i + 1.
template <class One>
static inline VecF store_and_sum_bf16(uint16_t* to, const float* from, int n, const One& one) {
  for (int i = 0; i < n; i += 16) store_bf16(to + i, load(from + i));
  VecF sum = zero();
  for (int i = 0; i < n; i += 32) sum = dot_bf16(sum, load_pairs(to + i), one);
  return sum;
}
#endif

// 2^x. Relative error under 2e-7, exactly 1 for 0, 0 for -inf. The polynomial is 1 + f * q(f), with
// the q of degree 4 whose largest relative error for |f| <= 1/2 is least (9.2e-8 before rounding).
static inline VecF exp2v(VecF x) {
  const VecF bounded = vmax(splat(-160.0f), x);  // this order keeps NaN
  const VecF n = round_even(bounded);
  const VecF f = sub(bounded, n);
  VecF p = splat(1.326472732e-3f);
  p = fma(p, f, splat(9.671512991e-3f));
  p = fma(p, f, splat(5.550733581e-2f));
  p = fma(p, f, splat(2.402224243e-1f));
  p = fma(p, f, splat(6.931470037e-1f));
  p = fma(p, f, splat(1.0f));
  return times_pow2(p, n);
}
static inline VecF expv(VecF x) { return exp2v(mul(x, splat(1.4426950408889634f))); }
static inline VecF sigmoid(VecF x) {
  return div(splat(1.0f), add(splat(1.0f), expv(sub(zero(), x))));
}
