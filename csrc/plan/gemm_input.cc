#include "plan/gemm_input.h"

#include <algorithm>
#include <utility>

namespace octavo {

void GemmInput::set_rows(int64_t begin, int64_t end) {
  if (begin == begin_ && end == end_) return;
  begin_ = begin;
  end_ = end;
  if (has_outliers(acts_.format())) collect();
}

// Calls body(row, k, value) for all outliers of the chosen rows, row by row.
template <class Body>
void GemmInput::for_outliers(Body body) const {
  const ActBuffer& buffer = acts_.buffer();
  const int64_t chunks = acts_.k() / kGroup;
  for (int64_t row = begin_; row < end_; ++row) {
    const int64_t first = acts_.chunk(row, 0);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const uint8_t at = buffer.outlier_at[first + chunk];
      if (at != kNoOutlier) {
        body(static_cast<int32_t>(row - begin_), chunk * kGroup + at,
             buffer.outlier[first + chunk]);
      }
    }
  }
}

void GemmInput::collect() {
  Lists& l = lists_;
  l.place.assign(acts_.k(), 0);
  for_outliers([&](int32_t, int64_t k, float) { ++l.place[k]; });
  l.columns.clear();
  int32_t total = 0;
  for (int64_t k = 0; k < acts_.k(); ++k) {
    if (l.place[k] == 0) continue;
    l.columns.push_back({static_cast<int32_t>(k), total, total + l.place[k]});
    total += std::exchange(l.place[k], total);
  }
  l.outliers.resize(total);
  for_outliers(
      [&](int32_t row, int64_t k, float value) { l.outliers[l.place[k]++] = {row, value}; });
}

void GemmInput::multiply(const Linear& linear, int64_t tile_index, const Prefetch& next,
                         float* out) {
  const Linear::Tile& tile = linear.tile(tile_index);
  const GemmFn* gemm = kernels_.gemm[static_cast<int>(tile.format)];
  const ActView view = acts_.view();
  // Blocks of rows as equal as they come: the kernels are at their best with many.
  const int64_t num_rows = end_ - begin_, most = kernels_.max_rows(tile.format);
  const int64_t num_blocks = (num_rows + most - 1) / most;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t row = num_rows * block / num_blocks;
    const int64_t rows = num_rows * (block + 1) / num_blocks - row;
    // The lines of the next tile are spread over the row blocks.
    const int64_t first = next.num_lines * block / num_blocks;
    const int64_t last = next.num_lines * (block + 1) / num_blocks;
    Prefetches prefetches;
    prefetches.tile = {next.begin + first * kLine, last - first};
    prefetches.kv = beside_.take(KvFeed::kLinesPerGroup * acts_.k() / kGroup);
    gemm[rows - 1](view, begin_ + row, tile.data, prefetches, out + row * kTileCols);
  }
  if (has_outliers(acts_.format()) && !lists_.columns.empty()) {
    kernels_.add_outliers[static_cast<int>(tile.format)](
        tile.data, lists_.columns.data(), static_cast<int64_t>(lists_.columns.size()),
        lists_.outliers.data(), out);
  }
  beside_.after_tile();
}

}  // namespace octavo
