#include "plan/kv_feed.h"

namespace octavo {

void KvFeed::start(const StepInput& input, const KvLayer& layer, int thread, int num_threads) {
  input_ = input.num_tokens < kMinTokens ? nullptr : &input;
  layer_ = layer;
  stride_ = num_threads;
  sequence_ = thread;
  block_ = 0;
  next_ = end_ = nullptr;
}

Prefetch KvFeed::take(int64_t num_lines) {
  if (input_ == nullptr || (next_ == end_ && !next_block())) return {};
  const int64_t left = (end_ - next_) / kLine;
  const Prefetch p{next_, num_lines < left ? num_lines : left};
  next_ += p.num_lines * kLine;
  return p;
}

bool KvFeed::next_block() {
  for (; sequence_ < input_->num_sequences; sequence_ += stride_, block_ = 0) {
    const SequenceStep& seq = input_->sequences[sequence_];
    if (block_ < seq.first_position / layer_.block_size) {
      next_ = layer_.base + input_->block_tables[seq.first_block + block_] * layer_.block_stride;
      end_ = next_ + layer_.block_stride;
      ++block_;
      return true;
    }
  }
  stop();
  return false;
}

}  // namespace octavo
