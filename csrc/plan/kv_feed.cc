#include "plan/kv_feed.h"

namespace octavo {

void KvFeed::start(const StepInput& input, std::span<const AttentionPiece> share,
                   const KvLayer& layer) {
  share_ = input.num_tokens < kMinTokens ? std::span<const AttentionPiece>() : share;
  input_ = &input;
  layer_ = layer;
  block_ = 0;
  next_ = end_ = nullptr;
}

Prefetch KvFeed::take(int64_t num_lines) {
  if (next_ == end_ && !next_block()) return {};
  const int64_t left = (end_ - next_) / kLine;
  const Prefetch p{next_, num_lines < left ? num_lines : left};
  next_ += p.num_lines * kLine;
  return p;
}

bool KvFeed::next_block() {
  for (; !share_.empty(); share_ = share_.subspan(1), block_ = 0) {
    const AttentionPiece& piece = share_.front();
    if (!piece.is_first(*input_)) continue;
    if (block_ < piece.first_position / layer_.block_size) {
      const int32_t first = input_->sequences[piece.sequence].first_block;
      next_ = layer_.base + input_->block_tables[first + block_] * layer_.block_stride;
      end_ = next_ + layer_.block_stride;
      ++block_;
      return true;
    }
  }
  return false;
}

}  // namespace octavo
