// Which keys and values a thread fetches while it multiplies.
#ifndef OCTAVO_PLAN_KV_FEED_H_
#define OCTAVO_PLAN_KV_FEED_H_

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "plan/attention_pieces.h"
#include "plan/step.h"

namespace octavo {

// With many sequences in a step, GEMMs are bound by arithmetic and attention by memory. So GEMMs
// fetch the blocks that an attention will read, a few lines at a time, each thread those of its own
// share.
class KvFeed {
 public:
  // Fewer rows leave the GEMMs themselves bound by memory: fetching more would only delay them.
  static constexpr int32_t kMinTokens = 16;
  // Lines for each 32 numbers along k of a GEMM call, as measured.
  static constexpr int64_t kLinesPerGroup = 6;

  // Begin with the blocks of `layer` that a share of the attention reads; window: how many keys a
  // query sees at most, 0 for all. Positions of this step are left out: they are written meanwhile.
  void start(const StepInput& input, std::span<const AttentionPiece> share, const KvLayer& layer,
             int32_t window);
  void stop() {
    share_ = {};
    next_ = end_;
  }

  // Up to `num_lines` adjacent lines, fewer at the end of a block, none when all have been handed
  // out.
  Prefetch take(int64_t num_lines);
  // Pieces of the share that were handed out whole.
  int64_t num_pieces_done() const { return num_pieces_done_; }

 private:
  bool next_block();
  void start_piece();

  const StepInput* input_ = nullptr;
  std::span<const AttentionPiece> share_;  // what is left of it
  KvLayer layer_;
  int32_t window_ = 0;
  int64_t num_pieces_done_ = 0;
  int32_t block_ = 0;
  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_KV_FEED_H_
