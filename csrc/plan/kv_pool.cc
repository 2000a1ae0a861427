#include "plan/kv_pool.h"

#include <sys/mman.h>

#include <algorithm>

namespace octavo {
namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack the name
#endif

uintptr_t next_page(const uint8_t* p) {
  return (reinterpret_cast<uintptr_t>(p) + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

KvPool::KvPool(int32_t num_layers, int64_t num_blocks, int64_t block_bytes)
    : memory_(num_layers * num_blocks * block_bytes),
      num_layers_(num_layers),
      num_blocks_(num_blocks),
      block_bytes_(block_bytes) {}

void KvPool::use(int64_t num_used, ThreadPool& threads) {
  num_used_ = std::max(num_used_, num_used);
  if (num_used_ > num_resident_) grow(num_used_ + kBlocksAtOnce, threads);
}

bool KvPool::grow_ahead(ThreadPool& threads) {
  const int64_t ahead = kBytesAhead / (block_bytes_ * num_layers_);
  if (num_resident_ >= std::min(num_used_ + ahead, num_blocks_)) return false;
  grow(num_resident_ + kBlocksAtOnce, threads);
  return true;
}

void KvPool::grow(int64_t num_blocks, ThreadPool& threads) {
  const int64_t target = std::min(num_blocks, num_blocks_);
  threads.run([&](int thread) {
    for (int32_t layer = thread; layer < num_layers_; layer += threads.size()) {
      const uint8_t* base = data() + layer * num_blocks_ * block_bytes_;
      // All before the first page that begins beyond what is resident is real already.
      const uintptr_t begin = num_resident_ == 0 ? next_page(base + 1) - kHugePage
                                                 : next_page(base + num_resident_ * block_bytes_);
      const uintptr_t end = std::min(next_page(base + target * block_bytes_),
                                     reinterpret_cast<uintptr_t>(data() + size()));
      // Advice: a system that does not know it makes pages real when they are written to.
      if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
    }
  });
  num_resident_ = target;
}

}  // namespace octavo
