#include "plan/quant_blocks.h"

#include <cmath>
#include <cstring>

namespace octavo {
namespace {

template <class T>
T read(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float read_half(const uint8_t* p) { return half_to_float(read<uint16_t>(p)); }

void set_scale(QuantGroup& g, float scale, float minimum) {
  g.scale[0] = g.scale[1] = scale;
  g.minimum[0] = g.minimum[1] = minimum;
}

// 16 bytes hold 32 nibbles: numbers 0..15 in the low halves, 16..31 in the high ones. `high_bits`
// adds a fifth bit to each.
void decode_nibbles(const uint8_t* p, uint32_t high_bits, int offset, QuantGroup& g) {
  for (int i = 0; i < 16; ++i) {
    g.q[i] = static_cast<int16_t>(((p[i] & 0x0f) | ((high_bits >> i) & 1) << 4) - offset);
    g.q[i + 16] = static_cast<int16_t>(((p[i] >> 4) | ((high_bits >> (i + 16)) & 1) << 4) - offset);
  }
}

// Scale and minimum (6 bits each) of group j of a K block; 12 bytes hold eight of both.
void decode_k_scale(const uint8_t* s, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 0x0f) | (s[j - 4] >> 6) << 4;
    *minimum = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

// Q4_K: d, dmin, 12 bytes of scales, 128 bytes of nibbles. Q5_K: 32 bytes of fifth bits before
// them.
QuantGroup decode_k45(const uint8_t* block, int j, bool five_bits) {
  QuantGroup g;
  int scale, minimum;
  decode_k_scale(block + 4, j, &scale, &minimum);
  set_scale(g, read_half(block) * static_cast<float>(scale),
            -(read_half(block + 2) * static_cast<float>(minimum)));
  const uint8_t* high = block + 16;
  const uint8_t* nibbles = block + (five_bits ? 48 : 16) + j / 2 * 32;
  for (int i = 0; i < 32; ++i) {
    int q = j % 2 == 0 ? nibbles[i] & 0x0f : nibbles[i] >> 4;
    if (five_bits) q |= (high[i] >> j & 1) << 4;
    g.q[i] = static_cast<int16_t>(q);
  }
  return g;
}

// Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, d.
QuantGroup decode_k6(const uint8_t* block, int j) {
  QuantGroup g;
  const int half = j / 4, quarter = j % 4;  // 128 numbers in a half, 32 in a quarter of it
  const uint8_t* low = block + half * 64 + quarter % 2 * 32;
  const uint8_t* high = block + 128 + half * 32;
  const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192) + half * 8 + quarter * 2;
  const float d = read_half(block + 208);
  for (int i = 0; i < 32; ++i) {
    const int nibble = quarter < 2 ? low[i] & 0x0f : low[i] >> 4;
    g.q[i] = static_cast<int16_t>((nibble | (high[i] >> 2 * quarter & 3) << 4) - 32);
  }
  for (int s = 0; s < 2; ++s) {
    g.scale[s] = d * static_cast<float>(scales[s]);
    g.minimum[s] = 0.0f;
  }
  return g;
}

}  // namespace

bool is_known(QuantType type) { return row_bytes(type, 256) > 0; }

bool is_float(QuantType type) {
  return type == QuantType::kF32 || type == QuantType::kF16 || type == QuantType::kBF16;
}

int64_t row_bytes(QuantType type, int64_t k) {
  switch (type) {
    case QuantType::kF32:
      return k * 4;
    case QuantType::kF16:
    case QuantType::kBF16:
      return k * 2;
    case QuantType::kQ4_0:
      return k / 32 * 18;
    case QuantType::kQ4_1:
      return k / 32 * 20;
    case QuantType::kQ5_0:
      return k / 32 * 22;
    case QuantType::kQ5_1:
      return k / 32 * 24;
    case QuantType::kQ8_0:
      return k / 32 * 34;
    case QuantType::kQ4_K:
      return k / 256 * 144;
    case QuantType::kQ5_K:
      return k / 256 * 176;
    case QuantType::kQ6_K:
      return k / 256 * 210;
  }
  return 0;
}

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  float value;
  if (exponent == 31) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return half & 0x8000 ? -value : value;
}

uint16_t float_to_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0f)) return sign | (magnitude != magnitude ? 0x7e00 : 0x7c00);
  if (magnitude <
      6.103515625e-5f) {  // subnormal: units of 2^-24; the nearest may be the first normal
    return static_cast<uint16_t>(sign |
                                 static_cast<int>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  int exponent;
  const float mantissa = std::frexp(magnitude, &exponent);                          // in [0.5, 1)
  const int fraction = static_cast<int>(std::nearbyint(std::ldexp(mantissa, 11)));  // 1024 .. 2048
  // A fraction of 2048 carries into the exponent by itself.
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + (fraction - 1024)));
}

uint16_t float_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

QuantGroup decode_group(QuantType type, const uint8_t* row, int64_t index) {
  QuantGroup g{};
  switch (type) {
    case QuantType::kQ4_0: {
      const uint8_t* p = row + index * 18;
      set_scale(g, read_half(p), 0.0f);
      decode_nibbles(p + 2, 0, 8, g);
      return g;
    }
    case QuantType::kQ4_1: {
      const uint8_t* p = row + index * 20;
      set_scale(g, read_half(p), read_half(p + 2));
      decode_nibbles(p + 4, 0, 0, g);
      return g;
    }
    case QuantType::kQ5_0: {
      const uint8_t* p = row + index * 22;
      set_scale(g, read_half(p), 0.0f);
      decode_nibbles(p + 6, read<uint32_t>(p + 2), 16, g);
      return g;
    }
    case QuantType::kQ5_1: {
      const uint8_t* p = row + index * 24;
      set_scale(g, read_half(p), read_half(p + 2));
      decode_nibbles(p + 8, read<uint32_t>(p + 4), 0, g);
      return g;
    }
    case QuantType::kQ8_0: {
      const uint8_t* p = row + index * 34;
      set_scale(g, read_half(p), 0.0f);
      for (int i = 0; i < 32; ++i) g.q[i] = static_cast<int8_t>(p[2 + i]);
      return g;
    }
    case QuantType::kQ4_K:
      return decode_k45(row + index / 8 * 144, index % 8, false);
    case QuantType::kQ5_K:
      return decode_k45(row + index / 8 * 176, index % 8, true);
    case QuantType::kQ6_K:
      return decode_k6(row + index / 8 * 210, index % 8);
    case QuantType::kF32:
    case QuantType::kF16:
    case QuantType::kBF16:
      break;  // not quantized: callers use dequantize_row
  }
  return g;
}

void dequantize_row(QuantType type, const uint8_t* row, int64_t k, float* out) {
  if (type == QuantType::kF32) {
    std::memcpy(out, row, k * 4);
  } else if (type == QuantType::kF16) {
    for (int64_t i = 0; i < k; ++i) out[i] = read_half(row + 2 * i);
  } else if (type == QuantType::kBF16) {
    for (int64_t i = 0; i < k; ++i) {
      const uint32_t bits = static_cast<uint32_t>(read<uint16_t>(row + 2 * i)) << 16;
      std::memcpy(out + i, &bits, 4);
    }
  } else {
    for (int64_t g = 0; g < k / 32; ++g) {
      const QuantGroup group = decode_group(type, row, g);
      for (int i = 0; i < 32; ++i) {
        // Two roundings, as the format's definition (this project is compiled without contraction).
        out[32 * g + i] =
            group.scale[i / 16] * static_cast<float>(group.q[i]) + group.minimum[i / 16];
      }
    }
  }
}

}  // namespace octavo
