// FP8 E4M3 of the Open Compute Project: OCP 8-bit Floating Point Specification (OFP8), 1.0, 2023.
// A sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, NaN is S.1111.111.
//
// All is static: each tier's file has its own copy.
#ifndef OCTAVO_KERNELS_FP8_H_
#define OCTAVO_KERNELS_FP8_H_

#include <cstdint>

namespace octavo {

// Nearest, ties to even; what is beyond 448 becomes 448 (the specification's saturating mode), NaN
// stays NaN.
static inline uint8_t float_to_e4m3(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7f;
  if (magnitude >= 0x43e00000) return sign | 0x7e;  // 448
  if (magnitude < 0x3c800000) {                     // 2^-6: subnormal, in units of 2^-9
    // The sum leaves no bits of a fraction. 8 units are the first normal number, code 8.
    const float units = (__builtin_fabsf(x) * 512.0f + 12582912.0f) - 12582912.0f;
    return sign | static_cast<uint8_t>(units);
  }
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120 << 3));
}

// The number of a code in bfloat16, which holds all of them.
static inline uint16_t e4m3_to_bf16(uint8_t code) {
  const uint16_t sign = static_cast<uint16_t>((code & 0x80) << 8);
  const int magnitude = code & 0x7f;
  if (magnitude == 0x7f) return sign | 0x7fc0;
  if (magnitude >= 8) return static_cast<uint16_t>(sign | ((magnitude << 4) + (120 << 7)));
  // magnitude / 512
  constexpr uint16_t kSubnormal[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  return sign | kSubnormal[magnitude];
}

}  // namespace octavo

#endif  // OCTAVO_KERNELS_FP8_H_
