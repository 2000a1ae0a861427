// Which keys and values a thread fetches while it multiplies.
#ifndef OCTAVO_PLAN_KV_FEED_H_
#define OCTAVO_PLAN_KV_FEED_H_

#include <cstdint>

#include "kernels/kernel_table.h"
#include "plan/step.h"

namespace octavo {

// With many sequences in a step, GEMMs are bound by arithmetic and attention by memory. So the
// GEMMs between two attentions fetch the blocks that the next one reads, a few lines at a time: one
// of several threads takes every n-th sequence, since the cache that the lines end up in is shared.
class KvFeed {
 public:
  // Fewer rows leave the GEMMs themselves bound by memory: fetching more would only delay them.
  static constexpr int32_t kMinTokens = 16;
  // Lines for each 32 numbers along k of a GEMM call, as measured.
  static constexpr int64_t kLinesPerGroup = 4;

  // Begin with the blocks of `layer`. Positions of this step are left out: they are written
  // meanwhile.
  void start(const StepInput& input, const KvLayer& layer, int thread, int num_threads);
  void stop() { input_ = nullptr; }

  // Up to `num_lines` adjacent lines, fewer at the end of a block, none when all have been handed
  // out.
  Prefetch take(int64_t num_lines);

 private:
  bool next_block();

  const StepInput* input_ = nullptr;
  KvLayer layer_;
  int32_t stride_ = 1;
  int32_t sequence_ = 0;
  int32_t block_ = 0;
  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_KV_FEED_H_
