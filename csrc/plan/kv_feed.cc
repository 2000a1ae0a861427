#include "plan/kv_feed.h"

#include <algorithm>

namespace octavo {

void KvFeed::start(const StepInput& input, std::span<const AttentionPiece> share,
                   const KvLayer& layer, int32_t window) {
  share_ = input.num_tokens < kMinTokens ? std::span<const AttentionPiece>() : share;
  input_ = &input;
  layer_ = layer;
  window_ = window;
  num_pieces_done_ = 0;
  next_ = end_ = nullptr;
  start_piece();
}

Prefetch KvFeed::take(int64_t num_lines) {
  if (next_ == end_ && !next_block()) return {};
  const int64_t left = (end_ - next_) / kLine;
  const Prefetch p{next_, num_lines < left ? num_lines : left};
  next_ += p.num_lines * kLine;
  return p;
}

// At the first block that the piece's queries see.
void KvFeed::start_piece() {
  block_ = 0;
  if (window_ > 0 && !share_.empty()) {
    block_ = std::max(0, share_.front().first_position - window_ + 1) / layer_.block_size;
  }
}

bool KvFeed::next_block() {
  while (!share_.empty()) {
    const AttentionPiece& piece = share_.front();
    if (piece.is_first(*input_) && block_ < piece.first_position / layer_.block_size) {
      const int32_t first = input_->sequences[piece.sequence].first_block;
      next_ = layer_.base + input_->block_tables[first + block_] * layer_.block_stride;
      end_ = next_ + layer_.block_stride;
      ++block_;
      return true;
    }
    share_ = share_.subspan(1);
    ++num_pieces_done_;
    start_piece();
  }
  return false;
}

}  // namespace octavo
