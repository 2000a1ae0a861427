// The memory of all blocks.
#ifndef OCTAVO_PLAN_KV_POOL_H_
#define OCTAVO_PLAN_KV_POOL_H_

#include <cstdint>

#include "plan/memory.h"
#include "plan/thread_pool.h"

namespace octavo {

// [layer][block][KV head][keys | values], reserved at once and made real as blocks come into use:
// blocks are handed out from the lowest number on. On a virtual machine a page that the system has
// not used for a while takes the host milliseconds to find; left to the first write, all threads of
// a step would wait for it one after another.
class KvPool {
 public:
  KvPool() = default;
  KvPool(int32_t num_layers, int64_t num_blocks, int64_t block_bytes);

  uint8_t* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  int64_t num_resident() const { return num_resident_; }

  // Blocks below `num_used` are written to next: makes them real, and a few more.
  void use(int64_t num_used, ThreadPool& threads);
  // For idle time: a few more, up to `kBytesAhead` beyond those in use. False: there are enough.
  bool grow_ahead(ThreadPool& threads);

 private:
  static constexpr int64_t kBytesAhead = int64_t{256} << 20;
  static constexpr int64_t kBlocksAtOnce = 16;  // what the block manager hands out as a run

  void grow(int64_t num_blocks, ThreadPool& threads);

  Buffer memory_;
  int32_t num_layers_ = 0;
  int64_t num_blocks_ = 0;
  int64_t block_bytes_ = 0;  // of one layer
  int64_t num_used_ = 0;
  int64_t num_resident_ = 0;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_KV_POOL_H_
