// One function table per instruction set; `kernels()` picks by what the processor has, once. No
// SIMD types here.
#ifndef OCTAVO_KERNELS_KERNEL_TABLE_H_
#define OCTAVO_KERNELS_KERNEL_TABLE_H_

#include <cstdint>

#include "kernels/formats.h"

namespace octavo {

constexpr int kMaxRows = 8;  // activation rows that one GEMM call takes at most
constexpr int kMaxHeadDim = 512;
constexpr int kKeysPerTile = 128;  // attention's unit, aligned to absolute position
constexpr int kKeysPerSplit =
    512;  // partial softmax results are merged at these positions, in order

// A stretch of memory that will be read soon. The GEMM spreads the prefetches over its own loads.
struct Prefetch {
  const uint8_t* begin = nullptr;
  int64_t num_lines = 0;
};

// What a GEMM call fetches while it multiplies: the next tile, and keys and values of an attention.
struct Prefetches {
  Prefetch tile;
  Prefetch kv;
};

// out[rows][32] = a[first_row ..][k] * tile[k][32]
using GemmFn = void (*)(const ActView& a, int64_t first_row, const uint8_t* tile,
                        const Prefetches& next, float* out);

constexpr uint8_t kNoOutlier = 0xff;

// Writes rows of activations. Offsets in chunks of 32 numbers from the start of the buffers.
struct ActBuffer {
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;
  int8_t* q = nullptr;
  float* scale = nullptr;
  float* sum = nullptr;
  int32_t* sum16 = nullptr;
  int32_t* row_sum = nullptr;     // one a row
  float* outlier = nullptr;       // per chunk of 32: the value left out, if there is one
  uint8_t* outlier_at = nullptr;  // and where in the chunk it belongs, else kNoOutlier
  float outlier_share = 1.0f;     // a number with more of the chunk's energy is left out
};

enum class Activation : uint8_t { kSilu = 0, kGeluTanh = 1 };

// Numbers of the cache; layouts in attention_cache_inl.h.
enum class KvFormat : uint8_t { kF32 = 0, kBf16 = 1, kInt8 = 2, kFp8 = 3 };

// Bytes of keys and values of one head in a block; `head_dim` is padded to a multiple of 16.
constexpr int64_t kv_head_bytes(KvFormat format, int64_t head_dim, int64_t block_size) {
  return format == KvFormat::kF32    ? 8 * head_dim * block_size
         : format == KvFormat::kBf16 ? 4 * head_dim * block_size
         : format == KvFormat::kFp8  ? 2 * head_dim * block_size
                                     : (2 * head_dim + 8) * block_size;
}

// Where one layer's keys and values lie: blocks of [KV head][keys | values], so that 16 tokens
// (keys) or 16 channels (values) are one line, and a block is read in place.
struct KvLayer {
  uint8_t* base = nullptr;
  int64_t block_stride = 0;  // bytes from block to block
  int64_t head_stride = 0;   // bytes from head to head in a block
  int32_t block_size = 0;
  int32_t head_dim = 0;  // D, padded to a multiple of 16
  KvFormat format = KvFormat::kBf16;
};

// Attention of one KV head: `num_tokens` query tokens of one sequence, G query heads each.
struct AttentionItem {
  KvLayer kv;
  const int32_t* block_table;
  int32_t kv_head;
  int32_t first_position;  // of the first query token
  int32_t num_tokens;
  int32_t group;       // G: query heads that share the KV head
  int32_t window;      // 0: none
  const float* query;  // float32 [num_tokens][group][head_dim], scaled by attention scale * log2(e)
  int64_t query_stride;  // floats from token to token
  float* out;            // float32 [num_tokens][group][head_dim]
  int64_t out_stride;    // floats from token to token
  uint8_t* scratch;      // attention_scratch_bytes()
};

// Largest logit seen so far; tokens must come in rising order, so that the lowest of equals is
// kept.
struct BestToken {
  float value;
  int32_t token;
  bool drawable;
};

struct KernelTable {
  const char* name;

  // gemm[format][rows - 1], for as many rows as this tier's registers hold, then nullptr.
  GemmFn gemm[kNumWeightFormats][kMaxRows];
  int max_rows(WeightFormat format) const {
    const GemmFn* row = gemm[static_cast<int>(format)];
    int rows = kMaxRows;
    while (row[rows - 1] == nullptr) --rows;
    return rows;
  }

  // out[row][32] += value * tile[k][32] for outliers in ascending order of k; quantized formats
  // only.
  void (*add_outliers[kNumWeightFormats])(const uint8_t* tile, const OutlierColumn* columns,
                                          int64_t num_columns, const Outlier* outliers, float* out);

  // Column `column` of a tile as k floats (the embedding of a token).
  void (*tile_column)(WeightFormat format, const uint8_t* tile, int64_t k, int column, float* out);

  // dst[n] = x[n] / sqrt(mean(x^2) + eps) * weight[n]; `count` numbers count for the mean, the
  // padding up to n (a multiple of 16) is zero.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t count, int64_t n,
                   float* dst);
  // x[n] += y[n]
  void (*add_to)(float* x, const float* y, int64_t n);
  // x[n] *= factor
  void (*scale)(float* x, float factor, int64_t n);
  // 32-number chunks of a row into the activation buffer, the first at chunk offset `chunk`, the
  // others `stride` apart. kRowQ8 takes one whole row.
  void (*store_acts)(ActFormat format, const float* x, int64_t num_chunks, const ActBuffer& dst,
                     int64_t chunk, int64_t stride);
  // out[n] = act(gate[n]) * up[n], n a multiple of 16
  void (*gate)(Activation kind, const float* gate, const float* up, int64_t n, float* out);
  // Turns pairs (x[i], x[i + half]) by cos[half], sin[half].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);

  // One token's keys and values [head_dim] into its slot.
  void (*write_kv)(const KvLayer& kv, int32_t block, int32_t slot, int32_t kv_head,
                   const float* key, const float* value);
  void (*attention)(const AttentionItem& item);

  // Whether a token can be drawn from logits: none is NaN or +infinity.
  bool (*is_drawable)(const float* x, int64_t n);
  // Takes note of n more logits (at most a tile), of the tokens from `first` on.
  void (*keep_best)(const float* x, int64_t n, int32_t first, BestToken* best);
  // The same of the tokens whose bit is set. The others' logits must be numbers too; -infinity may
  // be written there.
  void (*keep_best_allowed)(float* x, int64_t n, uint32_t allowed, int32_t first, BestToken* best);
  // -infinity in those of n columns, at most a tile, whose bit is not set.
  void (*hide)(float* x, int64_t n, uint32_t allowed);
  // Lowest index of the largest value; NaN is never the largest.
  int64_t (*argmax)(const float* x, int64_t n);
  // log(sum(exp(x))) over n values, by a fixed order of additions.
  double (*log_sum_exp)(const float* x, int64_t n, float max);
  // p[n] = exp((x[n] - max) * inv_temperature), for n padded with -inf to a multiple of 16.
  void (*exp_scaled)(const float* x, float max, float inv_temperature, int64_t n, float* p);

  // peak[activation format]: multiplies and adds without waiting; returns the operations. `in` and
  // `out` are 16 floats each, aligned to 64 bytes.
  int64_t (*peak[kNumActFormats])(int64_t rounds, const float* in, float* out);
};

// Bytes that one thread needs as scratch for `attention`.
int64_t attention_scratch_bytes(int64_t max_rows, int64_t head_dim);
// Query tokens that one item should hold at most.
int32_t attention_tokens_per_item(int32_t group, int32_t head_dim);

// Those of one architecture are built: avx512, avx2 and generic, or neon_i8mm, neon and generic.
const KernelTable& generic_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& neon_kernels();
const KernelTable& neon_i8mm_kernels();

// The tables that this processor runs, best first; the last is generic.
struct SupportedKernels {
  const KernelTable* tables[3];
  int count;
  const KernelTable* const* begin() const { return tables; }
  const KernelTable* const* end() const { return tables + count; }
};
const SupportedKernels& supported_kernels();
// The first of them, or the one named by OCTAVO_ISA; read once. nullptr if OCTAVO_ISA names none of
// them.
const KernelTable* kernels();
// Their names, comma-separated.
const char* supported_isas();

}  // namespace octavo

#endif  // OCTAVO_KERNELS_KERNEL_TABLE_H_
