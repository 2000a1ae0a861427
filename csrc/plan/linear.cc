#include "plan/linear.h"

#include <atomic>
#include <cstring>
#include <stdexcept>

namespace octavo {
namespace {

// Scales are kept in fp16 as in the files. Products of a K block's scales need up to 17 bits and
// lose 2^-11 of their value, far below the error of the 4 or 6 bits that they scale.
void put_scales(uint8_t* line, int lane, const QuantGroup& g, int half, bool with_minimum) {
  uint16_t* scales = reinterpret_cast<uint16_t*>(line);
  scales[lane] = float_to_half(g.scale[half]);
  if (with_minimum) scales[kPanelCols + lane] = float_to_half(g.minimum[half]);
}

void pack_group(QuantType type, WeightFormat format, const uint8_t* row, int64_t index, int column,
                uint8_t* tile) {
  QuantGroup g = decode_group(type, row, index);
  const int panel = column / kPanelCols, lane = column % kPanelCols;
  switch (format) {
    case WeightFormat::kU4: {
      if (type == QuantType::kQ4_0) {
        // q - 8 with a scale is u with the scale and a minimum of -8 scales, exact in fp16.
        for (int i = 0; i < 32; ++i) g.q[i] = static_cast<int16_t>(g.q[i] + 8);
        g.minimum[0] = g.minimum[1] = -8.0f * g.scale[0];
      }
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
      return;  // packed by pack_floats
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
    bytes += tile_bytes(f, padded_k_);
  }
  uint8_t* p = arena->allocate(bytes);
  for (WeightFormat f : formats) {
    tiles_.push_back({f, p});
    p += tile_bytes(f, padded_k_);
  }
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
    const WeightFormat f = tiles_[t].format;
    const bool as_float = f == WeightFormat::kF32 || f == WeightFormat::kBf16;
    if (!as_float && (is_float(type) || packed_format(type) != f)) {
      throw std::invalid_argument("a tile's format cannot hold this type");
    }
  }
  std::atomic<int64_t> next{0};
  pool.run([&](int) {
    std::vector<float> values(k_);
    constexpr int64_t kBatch = 32;
    for (int64_t r0 = next.fetch_add(kBatch); r0 < num_rows; r0 = next.fetch_add(kBatch)) {
      for (int64_t r = r0; r < num_rows && r < r0 + kBatch; ++r) {
        const Tile& t = tiles_[tile_of(r)];
        const int column = static_cast<int>(r % layout.rows_per_block % kTileCols);
        const uint8_t* row = rows + r * stride;
        if (t.format == WeightFormat::kF32 || t.format == WeightFormat::kBf16) {
          dequantize_row(type, row, k_, values.data());
          pack_floats(t.format, values.data(), k_, column, t.data);
        } else {
          for (int64_t g = 0; g < k_ / kGroup; ++g) {
            pack_group(type, t.format, row, g, column, t.data);
          }
        }
      }
    }
  });
}

}  // namespace octavo
