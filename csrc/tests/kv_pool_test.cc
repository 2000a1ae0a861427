// The pool becomes real memory ahead of its use, and keeps what is in it.
#include "plan/kv_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "tests/check.h"

namespace octavo::test {
namespace {

constexpr int32_t kLayers = 3;
constexpr int64_t kBlockBytes = 24 << 10;
constexpr int64_t kNumBlocks = 6000;  // 412 MiB, of which little is ever touched

// Older systems refuse to populate, and emulators agree without doing it.
bool knows_populate() {
  Buffer probe(size_t{2} << 20);
  unsigned char there = 0;
  return madvise(probe.data(), probe.size(), 23) == 0 && mincore(probe.data(), 1, &there) == 0 &&
         (there & 1) != 0;
}

// Whether the system holds memory for all of a layer's blocks below `num_blocks`.
bool is_real(const KvPool& pool, int32_t layer, int64_t num_blocks) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t base =
      reinterpret_cast<uintptr_t>(pool.data() + layer * kNumBlocks * kBlockBytes);
  const uintptr_t begin = base / page * page;
  const uintptr_t end = (base + num_blocks * kBlockBytes + page - 1) / page * page;
  std::vector<unsigned char> there((end - begin) / page);
  if (mincore(reinterpret_cast<void*>(begin), end - begin, there.data()) != 0) return false;
  for (unsigned char c : there) {
    if ((c & 1) == 0) return false;
  }
  return true;
}

TEST(blocks_are_memory_before_they_are_written_to) {
  ThreadPool threads(2);
  KvPool pool(kLayers, kNumBlocks, kBlockBytes);
  CHECK(pool.num_resident() == 0, "%ld", static_cast<long>(pool.num_resident()));
  for (int64_t used : {1, 2, 90, 91, 400}) {
    pool.use(used, threads);
    CHECK(pool.num_resident() >= used, "%ld", static_cast<long>(pool.num_resident()));
    for (int32_t layer = 0; layer < kLayers && knows_populate(); ++layer) {
      CHECK(is_real(pool, layer, used), "layer %d, %ld blocks", layer, static_cast<long>(used));
    }
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      pool.data()[(layer * kNumBlocks + used - 1) * kBlockBytes] = static_cast<uint8_t>(used);
    }
  }
  for (int64_t used : {1, 2, 90, 91, 400}) {
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      const uint8_t held = pool.data()[(layer * kNumBlocks + used - 1) * kBlockBytes];
      CHECK(held == static_cast<uint8_t>(used), "block %ld", static_cast<long>(used - 1));
    }
  }
}

TEST(idle_time_prepares_so_many_blocks_and_no_more) {
  ThreadPool threads(2);
  KvPool pool(kLayers, kNumBlocks, kBlockBytes);
  while (pool.grow_ahead(threads)) {
  }
  const int64_t ahead = pool.num_resident();
  CHECK(ahead > 16 &&
            ahead * kLayers * kBlockBytes <= (int64_t{256} << 20) + 16 * kLayers * kBlockBytes,
        "%ld blocks", static_cast<long>(ahead));
  pool.use(ahead / 2, threads);
  CHECK(pool.num_resident() == ahead, "what is there is not made again");
  CHECK(pool.grow_ahead(threads), "more is in use, so more is wanted ahead");

  KvPool small(kLayers, 20, kBlockBytes);
  while (small.grow_ahead(threads)) {
  }
  CHECK(small.num_resident() == 20, "%ld", static_cast<long>(small.num_resident()));
  small.use(20, threads);
}

}  // namespace
}  // namespace octavo::test
