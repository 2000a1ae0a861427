#include "plan/gemm_input.h"

#include <algorithm>

namespace octavo {

void GemmInput::set_rows(int64_t begin, int64_t end) {
  if (begin == begin_ && end == end_) return;
  begin_ = begin;
  end_ = end;
  if (has_outliers(acts_.format())) collect();
}

void GemmInput::collect() {
  const ActBuffer& buffer = acts_.buffer();
  lists_.columns.clear();
  lists_.outliers.clear();
  std::vector<Outlier> found;
  for (int64_t k = 0; k < acts_.k(); k += kGroup) {
    found.clear();
    for (int64_t row = begin_; row < end_; ++row) {
      const int64_t chunk = acts_.chunk(row, k);
      if (buffer.outlier[chunk] != 0.0f) {
        found.push_back({static_cast<int32_t>(k) + buffer.outlier_at[chunk],
                         static_cast<int32_t>(row - begin_), buffer.outlier[chunk]});
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Outlier& a, const Outlier& b) { return a.k < b.k; });
    for (const Outlier& o : found) {
      const int32_t position = static_cast<int32_t>(lists_.outliers.size());
      if (lists_.columns.empty() || lists_.columns.back().k != o.k) {
        lists_.columns.push_back({o.k, position, position});
      }
      lists_.columns.back().end = position + 1;
      lists_.outliers.push_back(o);
    }
  }
}

void GemmInput::multiply(const Linear& linear, int64_t tile_index, const Linear::Tile* next,
                         float* out) {
  const Linear::Tile& tile = linear.tile(tile_index);
  const GemmFn* gemm = kernels_.gemm[static_cast<int>(tile.format)];
  const ActView view = acts_.view();
  // Blocks of rows as equal as they come: the kernels are at their best with many.
  const int64_t num_rows = end_ - begin_, most = kernels_.max_rows(tile.format);
  const int64_t num_blocks = (num_rows + most - 1) / most;
  const int64_t lines = next == nullptr ? 0 : tile_bytes(next->format, linear.padded_k()) / kLine;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t row = num_rows * block / num_blocks;
    const int64_t rows = num_rows * (block + 1) / num_blocks - row;
    // The lines of the next tile are spread over the row blocks.
    const int64_t first = lines * block / num_blocks, last = lines * (block + 1) / num_blocks;
    Prefetches prefetches;
    if (next != nullptr) prefetches.tile = {next->data + first * kLine, last - first};
    prefetches.kv = feed_.take(KvFeed::kLinesPerGroup * acts_.k() / kGroup);
    gemm[rows - 1](view, begin_ + row, tile.data, prefetches, out + row * kTileCols);
  }
  if (has_outliers(acts_.format()) && !lists_.columns.empty()) {
    kernels_.add_outliers[static_cast<int>(tile.format)](
        tile.data, lists_.columns.data(), static_cast<int64_t>(lists_.columns.size()),
        lists_.outliers.data(), out);
  }
}

}  // namespace octavo
