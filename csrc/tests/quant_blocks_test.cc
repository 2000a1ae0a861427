// Number formats, with values worked out by hand.
#include "plan/quant_blocks.h"

#include <cmath>

#include "tests/check.h"

namespace octavo::test {

TEST(every_half_survives_the_way_through_float) {
  for (int h = 0; h < 65536; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    if (f != f) continue;  // NaN payloads are not kept
    CHECK(float_to_half(f) == h, "half %04x -> %g -> %04x", h, static_cast<double>(f),
          float_to_half(f));
  }
}

TEST(halves_round_to_nearest_even) {
  CHECK(float_to_half(1.0f + 0x1p-11f) == 0x3c00, "tie goes to even");
  CHECK(float_to_half(1.0f + 3 * 0x1p-11f) == 0x3c02, "tie goes to even");
  CHECK(float_to_half(65519.0f) == 0x7bff, "largest");
  CHECK(float_to_half(65520.0f) == 0x7c00, "infinity");
  CHECK(float_to_half(0x1p-25f) == 0, "tie below the smallest subnormal goes to even");
  CHECK(float_to_half(0x1.8p-25f) == 1, "rounds up to the smallest subnormal");
  CHECK(float_to_half(0x1.ff8p-15f) == 0x03ff, "largest subnormal");
  CHECK(float_to_half(-2.0f) == 0xc000, "sign");
}

TEST(blocks_of_32_decode_as_defined) {
  uint8_t q4_1[20] = {0x00, 0x38, 0x00, 0xbc};  // d = 0.5, m = -1
  for (int i = 0; i < 16; ++i) q4_1[4 + i] = static_cast<uint8_t>(i | (15 - i) << 4);
  float out[32];
  dequantize_row(QuantType::kQ4_1, q4_1, 32, out);
  for (int i = 0; i < 16; ++i) {
    CHECK(out[i] == 0.5f * static_cast<float>(i) - 1.0f, "low %d", i);
    CHECK(out[i + 16] == 0.5f * static_cast<float>(15 - i) - 1.0f, "high %d", i);
  }
  uint8_t q5_0[22] = {0x00, 0x3c, 0x01, 0x00, 0x01, 0x00};  // d = 1; fifth bit of numbers 0 and 16
  dequantize_row(QuantType::kQ5_0, q5_0, 32, out);
  CHECK(out[0] == 0.0f && out[1] == -16.0f && out[16] == 0.0f && out[17] == -16.0f, "%g %g",
        static_cast<double>(out[0]), static_cast<double>(out[1]));
}

TEST(k_blocks_decode_as_defined) {
  // Q4_K: d = 1, dmin = 0.5; group 0 has scale 3 and minimum 2, group 4 scale 0x21 and minimum
  // 0x12.
  uint8_t block[144] = {0x00, 0x3c, 0x00, 0x38};
  uint8_t* scales = block + 4;
  scales[0] = 3 | (0x21 >> 4) << 6;
  scales[4] = 2 | (0x12 >> 4) << 6;
  scales[8] = (0x21 & 0x0f) | (0x12 & 0x0f) << 4;
  block[16] = 5;           // group 0, number 0
  block[16 + 2 * 32] = 7;  // group 4, number 0
  float out[256];
  dequantize_row(QuantType::kQ4_K, block, 256, out);
  CHECK(out[0] == 3.0f * 5 - 0.5f * 2, "%g", static_cast<double>(out[0]));
  CHECK(out[1] == -1.0f, "%g", static_cast<double>(out[1]));
  CHECK(out[128] == 33.0f * 7 - 0.5f * 18, "%g", static_cast<double>(out[128]));

  // Q6_K: d = 1, scale of numbers 96..111 is -2; number 96 has 0b110101 = 53.
  uint8_t six[210] = {};
  six[32] = 5 << 4;   // low nibble of number 96
  six[128] = 3 << 6;  // high bits of number 96
  six[192 + 6] = static_cast<uint8_t>(-2);
  six[209] = 0x3c;
  dequantize_row(QuantType::kQ6_K, six, 256, out);
  CHECK(out[96] == -2.0f * (53 - 32), "%g", static_cast<double>(out[96]));
}

}  // namespace octavo::test
