#include "plan/memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace octavo {

Buffer::Buffer(size_t num_bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (num_bytes == 0) return;
  const size_t rounded =
      num_bytes < kHugePage ? num_bytes : (num_bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* p = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  // Advice only: without huge pages everything works, a few percent slower.
  if (rounded >= kHugePage) madvise(p, rounded, MADV_HUGEPAGE);
  data_ = static_cast<uint8_t*>(p);
  size_ = rounded;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

uint8_t* Arena::allocate(size_t num_bytes) {
  constexpr size_t kBuffer = size_t{64} << 20;  // only what is written to is ever real memory
  constexpr size_t kCacheLine = 64;
  num_bytes = (num_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  if (buffers_.empty() || buffers_.back().size() - used_ < num_bytes) {
    buffers_.emplace_back(num_bytes > kBuffer ? num_bytes : kBuffer);
    used_ = 0;
  }
  uint8_t* p = buffers_.back().data() + used_;
  used_ += num_bytes;
  num_bytes_ += num_bytes;
  return p;
}

}  // namespace octavo
