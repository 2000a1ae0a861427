// The vector of a tier: 16 floats, 16 int32, and the dot products that the kernels are made of.
//
// This file is included by the one translation unit of each tier, inside that tier's namespace, and
// all it defines is static: an AVX-512 function must never be the copy that the linker keeps for
// everybody.
#if defined(OCTAVO_TIER_AVX512)
#include "kernels/simd_avx512.h"
#elif defined(OCTAVO_TIER_AVX2)
#include "kernels/simd_avx2.h"
#else
#include "kernels/simd_generic.h"
#endif

// 2^x. Error under 1e-7 relative; 0 below -126 (and for -inf).
static inline VecF exp2v(VecF x) {
  const VecF bounded = vmin(splat(127.0f), vmax(splat(-126.0f), x));  // this order keeps NaN
  const VecF n = round_even(bounded);
  const VecF f = sub(bounded, n);
  // Taylor series of 2^f for |f| <= 1/2: ln(2)^k / k!
  VecF p = splat(1.5252733804059840e-5f);
  p = fma(p, f, splat(1.5403530393381609e-4f));
  p = fma(p, f, splat(1.3333558146428443e-3f));
  p = fma(p, f, splat(9.6181291076284772e-3f));
  p = fma(p, f, splat(5.5504108664821580e-2f));
  p = fma(p, f, splat(2.4022650695910072e-1f));
  p = fma(p, f, splat(6.9314718055994531e-1f));
  p = fma(p, f, splat(1.0f));
  return zero_below(scale_pow2(p, to_int(n)), x, -126.0f);
}
static inline VecF expv(VecF x) { return exp2v(mul(x, splat(1.4426950408889634f))); }
static inline VecF sigmoid(VecF x) {
  return div(splat(1.0f), add(splat(1.0f), expv(sub(zero(), x))));
}
