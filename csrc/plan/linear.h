// A weight matrix, packed in tiles for the GEMM kernels.
#ifndef OCTAVO_PLAN_LINEAR_H_
#define OCTAVO_PLAN_LINEAR_H_

#include <cstdint>
#include <vector>

#include "kernels/formats.h"
#include "kernels/kernel_table.h"
#include "plan/memory.h"
#include "plan/quant_blocks.h"
#include "plan/thread_pool.h"

namespace octavo {

// Which packed form holds a file's type, when weights stay as they are.
WeightFormat packed_format(QuantType type);

// Where the rows of a matrix go: row r, in block b = r / rows_per_block at i = r % rows_per_block,
// becomes column i % 32 of tile  first_tile + b * block_stride + (i / 32) * tile_stride. Heads are
// blocks of D rows (each padded to whole tiles); gate and up rows take every other tile.
struct TileLayout {
  int64_t rows_per_block;
  int64_t first_tile;
  int64_t block_stride;
  int64_t tile_stride;
};

class Linear {
 public:
  // k: columns of the matrix (inputs). One format per tile; the inputs of all must be of one kind.
  // The arena owns the memory. Throws std::invalid_argument, std::bad_alloc.
  Linear(int64_t k, const std::vector<WeightFormat>& formats, Arena* arena);

  // Packs `num_rows` rows as they lie in a file. Tiles must have been given a format that can hold
  // the type: its own packed form, kF32 or kBf16; floats are also quantized to kI8, kU4 or kS8.
  // Throws std::invalid_argument.
  void pack(QuantType type, const uint8_t* rows, int64_t num_rows, const TileLayout& layout,
            ThreadPool& pool);

  int64_t k() const { return k_; }                // inputs
  int64_t padded_k() const { return padded_k_; }  // the same, as a multiple of 32
  int64_t num_bytes() const;
  int64_t num_tiles() const { return static_cast<int64_t>(tiles_.size()); }
  ActFormat acts() const { return act_format(tiles_.front().format); }

  struct Tile {
    WeightFormat format;
    uint8_t* data;
  };
  const Tile& tile(int64_t i) const { return tiles_[i]; }
  // All lines of a tile.
  Prefetch lines(int64_t i) const {
    return {tiles_[i].data, tile_bytes(tiles_[i].format, padded_k_) / kLine};
  }

 private:
  // values: memory for k floats.
  void pack_row(QuantType type, const uint8_t* row, const Tile& tile, int column,
                float* values) const;

  int64_t k_;
  int64_t padded_k_;
  std::vector<Tile> tiles_;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_LINEAR_H_
