// The block formats of GGUF files, decoded to whole numbers and scales.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and ggml's block structures.
#ifndef OCTAVO_PLAN_QUANT_BLOCKS_H_
#define OCTAVO_PLAN_QUANT_BLOCKS_H_

#include <cstdint>

namespace octavo {

// Values are ggml's type numbers.
enum class QuantType : int {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

bool is_known(QuantType type);
bool is_float(QuantType type);
// Bytes of a row of k numbers.
int64_t row_bytes(QuantType type, int64_t k);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);
uint16_t float_to_bf16(float value);  // nearest even, finite input

// 32 numbers of a quantized row: value[i] = scale[i / 16] * q[i] + minimum[i / 16].
struct QuantGroup {
  int16_t q[32];
  float scale[2];
  float minimum[2];
};
// Group `index` (32 numbers) of a row of a quantized type.
QuantGroup decode_group(QuantType type, const uint8_t* row, int64_t index);

// A whole row of k numbers, as the format defines them in float32.
void dequantize_row(QuantType type, const uint8_t* row, int64_t k, float* out);

}  // namespace octavo

#endif  // OCTAVO_PLAN_QUANT_BLOCKS_H_
