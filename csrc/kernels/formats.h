// The forms in which weights and activations lie in memory. No SIMD types here.
//
// Weights are packed in tiles of 32 output columns: two panels of 16 columns, one column per SIMD
// lane. A tile is one contiguous stream of 64-byte lines along k, so a thread reads it linearly,
// and every output element is one fixed chain of additions over k: the same bits for 1 row and for
// 1,000.
#ifndef OCTAVO_KERNELS_FORMATS_H_
#define OCTAVO_KERNELS_FORMATS_H_

#include <cstdint>

namespace octavo {

constexpr int kTileCols = 32;   // output columns of a tile
constexpr int kPanelCols = 16;  // columns of a panel: one SIMD vector of floats
constexpr int kGroup = 32;      // numbers along k that share an activation scale
constexpr int kLine = 64;       // bytes of a cache line

enum class WeightFormat : uint8_t {
  kF32 = 0,    // [k][32] float
  kBf16 = 1,   // [k/2][32][2] bfloat16 pairs
  kU4 = 2,     // w = d * u + m, u of 4 bits; groups of 32. Q4_0, Q4_1, Q4_K
  kS8 = 3,     // w = d * q, q of 8 bits; groups of 32. Q8_0, Q5_0
  kS8x16 = 4,  // the same with groups of 16. Q6_K
  kU8 = 5,     // w = d * u + m, u of 5 bits in a byte; groups of 32. Q5_1, Q5_K
  kI8 = 6,     // w = d * q, q of 8 bits; one d for a column. Made from floats at load
};
constexpr int kNumWeightFormats = 7;

// kQ8 has a scale for 32 numbers, kRowQ8 one for a row.
enum class ActFormat : uint8_t { kF32 = 0, kBf16 = 1, kQ8 = 2, kRowQ8 = 3 };
constexpr int kNumActFormats = 4;

// The activations that a weight format multiplies with.
constexpr ActFormat act_format(WeightFormat w) {
  return w == WeightFormat::kF32    ? ActFormat::kF32
         : w == WeightFormat::kBf16 ? ActFormat::kBf16
         : w == WeightFormat::kI8   ? ActFormat::kRowQ8
                                    : ActFormat::kQ8;
}

constexpr int64_t kMaxInt8K = 1 << 17;  // of kI8: 128 * 127 * k stays below 2^31

// Bytes of one record (the k-step in which a tile is laid out) and the k it covers.
//   kF32   k 1:  32 floats
//   kBf16  k 2:  32 pairs
//   kU4    k 32: per panel 4 lines (low nibble k 8j..8j+3, high nibble k 8j+4..8j+7), 16 d and 16 m
//   in fp16 kS8    k 32: per panel 8 lines of 4 k (q + 128), then 16 d of each panel in fp16 kS8x16
//   k 16: per panel 4 lines of 4 k (q + 128), then 16 d of each panel in fp16 kU8    k 32: per
//   panel 8 lines of 4 k, then per panel 16 d and 16 m in fp16
//   kI8    k 4: per panel a line (q + 128); before the first record 32 d in float
constexpr int record_k(WeightFormat w) {
  return w == WeightFormat::kF32     ? 1
         : w == WeightFormat::kBf16  ? 2
         : w == WeightFormat::kI8    ? 4
         : w == WeightFormat::kS8x16 ? 16
                                     : 32;
}
constexpr int64_t record_bytes(WeightFormat w) {
  return w == WeightFormat::kU4      ? 10 * kLine
         : w == WeightFormat::kS8    ? 17 * kLine
         : w == WeightFormat::kS8x16 ? 9 * kLine
         : w == WeightFormat::kU8    ? 18 * kLine
                                     : 2 * kLine;
}
// Bytes before the first record of a tile.
constexpr int64_t header_bytes(WeightFormat w) { return w == WeightFormat::kI8 ? 2 * kLine : 0; }
// Bytes of a tile; k is a multiple of 32.
constexpr int64_t tile_bytes(WeightFormat w, int64_t k) {
  return header_bytes(w) + k / record_k(w) * record_bytes(w);
}

constexpr bool has_outliers(ActFormat a) { return a == ActFormat::kQ8 || a == ActFormat::kRowQ8; }

// A number that int8 could not hold beside its neighbours: it keeps its value, its q is 0.
struct Outlier {
  int32_t row;  // counted from the first row that is multiplied
  float value;
};
// The outliers at one k: a stretch of a list.
struct OutlierColumn {
  int32_t k;
  int32_t begin;
  int32_t end;
};

// Rows of activations, k values each (k a multiple of 32, padded with zeros).
struct ActView {
  const float* f32 = nullptr;        // [rows][k]                          kF32
  const uint16_t* bf16 = nullptr;    // [rows][k]                          kBf16
  const int8_t* q = nullptr;         // [rows][k]      kQ8, kRowQ8: value = q * scale
  const float* scale = nullptr;      // [rows][k / 32] kQ8, [rows] kRowQ8
  const float* sum = nullptr;        // [rows][k / 32] scale * sum of q    kQ8
  const int32_t* sum16 = nullptr;    // [rows][k / 16] sum of q            kQ8
  const int32_t* row_sum = nullptr;  // [rows] sum of q                  kRowQ8
  int64_t k = 0;
};

}  // namespace octavo

#endif  // OCTAVO_KERNELS_FORMATS_H_
