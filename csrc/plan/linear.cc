#include "plan/linear.h"

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "plan/quantize.h"

namespace octavo {
namespace {

// Scales are kept in fp16 as in the files. Products of a K block's scales need up to 17 bits and
// lose 2^-11 of their value, far below the error of the 4 or 6 bits that they scale.
void put_scales(uint8_t* line, int lane, const QuantGroup& g, int half, bool with_minimum) {
  uint16_t* scales = reinterpret_cast<uint16_t*>(line);
  scales[lane] = float_to_half(g.scale[half]);
  if (with_minimum) scales[kPanelCols + lane] = float_to_half(g.minimum[half]);
}

// Group `index` of a file's row, or of the floats that it was decoded to, as the tile will hold it.
QuantGroup group_for(WeightFormat format, QuantType type, const uint8_t* row, const float* values,
                     int64_t index) {
  if (is_float(type)) {
    const float* x = values + index * kGroup;
    return format == WeightFormat::kU4 ? quantize_u4(x) : quantize_s8(x);
  }
  QuantGroup g = decode_group(type, row, index);
  if (type == QuantType::kQ4_0) {
    // q - 8 with a scale is u with the scale and a minimum of -8 scales, exact in fp16.
    for (int i = 0; i < 32; ++i) g.q[i] = static_cast<int16_t>(g.q[i] + 8);
    g.minimum[0] = g.minimum[1] = -8.0f * g.scale[0];
  }
  return g;
}

void pack_group(WeightFormat format, const QuantGroup& g, int64_t index, int column,
                uint8_t* tile) {
  const int panel = column / kPanelCols, lane = column % kPanelCols;
  switch (format) {
    case WeightFormat::kU4: {
      uint8_t* lines = tile + index * record_bytes(format) + panel * 5 * kLine;
      for (int i = 0; i < 32; ++i) {
        const int shift = i % 8 < 4 ? 0 : 4;
        lines[i / 8 * kLine + lane * 4 + i % 4] |= static_cast<uint8_t>(g.q[i] << shift);
      }
      put_scales(lines + 4 * kLine, lane, g, 0, true);
      return;
    }
    case WeightFormat::kS8: {
      uint8_t* record = tile + index * record_bytes(format);
      uint8_t* lines = record + panel * 8 * kLine;
      for (int i = 0; i < 32; ++i) {
        lines[i / 4 * kLine + lane * 4 + i % 4] = static_cast<uint8_t>(g.q[i] + 128);
      }
      put_scales(record + 16 * kLine + panel * 32, lane, g, 0, false);
      return;
    }
    case WeightFormat::kS8x16:
      for (int half = 0; half < 2; ++half) {
        uint8_t* record = tile + (2 * index + half) * record_bytes(format);
        uint8_t* lines = record + panel * 4 * kLine;
        for (int i = 0; i < 16; ++i) {
          lines[i / 4 * kLine + lane * 4 + i % 4] = static_cast<uint8_t>(g.q[16 * half + i] + 128);
        }
        put_scales(record + 8 * kLine + panel * 32, lane, g, half, false);
      }
      return;
    case WeightFormat::kU8: {
      uint8_t* lines = tile + index * record_bytes(format) + panel * 9 * kLine;
      for (int i = 0; i < 32; ++i) {
        lines[i / 4 * kLine + lane * 4 + i % 4] = static_cast<uint8_t>(g.q[i]);
      }
      put_scales(lines + 8 * kLine, lane, g, 0, true);
      return;
    }
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
    case WeightFormat::kI8:
      return;  // packed by the row
  }
}

void pack_floats(WeightFormat format, const float* values, int64_t k, int column, uint8_t* tile) {
  if (format == WeightFormat::kF32) {
    float* out = reinterpret_cast<float*>(tile);
    for (int64_t i = 0; i < k; ++i) out[i * kTileCols + column] = values[i];
    return;
  }
  uint16_t* out = reinterpret_cast<uint16_t*>(tile);
  for (int64_t i = 0; i < k; ++i) {
    out[i / 2 * 2 * kTileCols + 2 * column + i % 2] = float_to_bf16(values[i]);
  }
}

void pack_int8(const float* values, int64_t k, int64_t padded_k, int column, uint8_t* tile) {
  std::vector<int8_t> q(padded_k);  // zeros beyond k
  reinterpret_cast<float*>(tile)[column] = quantize_row_s8(values, k, q.data());
  const int panel = column / kPanelCols, lane = column % kPanelCols;
  uint8_t* lines = tile + header_bytes(WeightFormat::kI8) + panel * kLine + lane * 4;
  for (int64_t i = 0; i < padded_k; ++i) {
    lines[i / 4 * 2 * kLine + i % 4] = static_cast<uint8_t>(q[i] + 128);
  }
}

bool is_float_tile(WeightFormat f) { return f == WeightFormat::kF32 || f == WeightFormat::kBf16; }

bool can_hold(WeightFormat f, QuantType type) {
  if (is_float_tile(f)) return true;
  if (is_float(type)) {
    return f == WeightFormat::kU4 || f == WeightFormat::kS8 || f == WeightFormat::kI8;
  }
  return packed_format(type) == f;
}

}  // namespace

WeightFormat packed_format(QuantType type) {
  switch (type) {
    case QuantType::kQ4_0:
    case QuantType::kQ4_1:
    case QuantType::kQ4_K:
      return WeightFormat::kU4;
    case QuantType::kQ5_0:
    case QuantType::kQ8_0:
      return WeightFormat::kS8;
    case QuantType::kQ6_K:
      return WeightFormat::kS8x16;
    case QuantType::kQ5_1:
    case QuantType::kQ5_K:
      return WeightFormat::kU8;
    case QuantType::kF32:
    case QuantType::kF16:
    case QuantType::kBF16:
      return WeightFormat::kBf16;
  }
  throw std::invalid_argument("unknown quantization type");
}

Linear::Linear(int64_t k, const std::vector<WeightFormat>& formats, Arena* arena)
    : k_(k), padded_k_((k + kGroup - 1) / kGroup * kGroup) {
  if (formats.empty() || k < 1) throw std::invalid_argument("a matrix needs rows and columns");
  size_t bytes = 0;
  for (WeightFormat f : formats) {
    if (act_format(f) != act_format(formats.front())) {
      throw std::invalid_argument("the tiles of a matrix must take activations of one kind");
    }
    if (act_format(f) == ActFormat::kQ8 && k % kGroup != 0) {
      throw std::invalid_argument("quantized tiles need a multiple of 32 columns");
    }
    if (f == WeightFormat::kI8 && k > kMaxInt8K) {
      throw std::invalid_argument("int8 tiles take at most 131,072 columns");
    }
    bytes += tile_bytes(f, padded_k_);
  }
  uint8_t* p = arena->allocate(bytes);
  for (WeightFormat f : formats) {
    tiles_.push_back({f, p});
    p += tile_bytes(f, padded_k_);
  }
}

int64_t Linear::num_bytes() const {
  int64_t bytes = 0;
  for (const Tile& tile : tiles_) bytes += tile_bytes(tile.format, padded_k_);
  return bytes;
}

void Linear::pack(QuantType type, const uint8_t* rows, int64_t num_rows, const TileLayout& layout,
                  ThreadPool& pool) {
  const int64_t stride = row_bytes(type, k_);
  auto tile_of = [&](int64_t r) {
    const int64_t i = r % layout.rows_per_block;
    return layout.first_tile + r / layout.rows_per_block * layout.block_stride +
           i / kTileCols * layout.tile_stride;
  };
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t t = tile_of(r);
    if (t < 0 || t >= num_tiles()) throw std::invalid_argument("rows beyond the last tile");
    if (!can_hold(tiles_[t].format, type)) {
      throw std::invalid_argument("a tile's format cannot hold this type");
    }
  }
  std::atomic<int64_t> next{0};
  pool.run([&](int) {
    std::vector<float> values(k_);
    constexpr int64_t kBatch = 32;
    for (int64_t r0 = next.fetch_add(kBatch); r0 < num_rows; r0 = next.fetch_add(kBatch)) {
      for (int64_t r = r0; r < num_rows && r < r0 + kBatch; ++r) {
        const int column = static_cast<int>(r % layout.rows_per_block % kTileCols);
        pack_row(type, rows + r * stride, tiles_[tile_of(r)], column, values.data());
      }
    }
  });
}

void Linear::pack_row(QuantType type, const uint8_t* row, const Tile& tile, int column,
                      float* values) const {
  const bool by_row = is_float_tile(tile.format) || tile.format == WeightFormat::kI8;
  if (by_row || is_float(type)) dequantize_row(type, row, k_, values);
  if (tile.format == WeightFormat::kI8) {
    pack_int8(values, k_, padded_k_, column, tile.data);
  } else if (by_row) {
    pack_floats(tile.format, values, k_, column, tile.data);
  } else {
    for (int64_t g = 0; g < k_ / kGroup; ++g) {
      pack_group(tile.format, group_for(tile.format, type, row, values, g), g, column, tile.data);
    }
  }
}

}  // namespace octavo
