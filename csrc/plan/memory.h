// Large zeroed memory in 2 MB pages where the system gives them.
#ifndef OCTAVO_PLAN_MEMORY_H_
#define OCTAVO_PLAN_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo {

class Buffer {
 public:
  Buffer() = default;
  // Throws std::bad_alloc. Zeroed, aligned to a page at least.
  explicit Buffer(size_t num_bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Memory for many matrices, given out in order and kept to the end. Small ones share the large
// pages.
class Arena {
 public:
  // Zeroed, on a cache line. Throws std::bad_alloc.
  uint8_t* allocate(size_t num_bytes);

  // Bytes given out.
  size_t num_bytes() const { return num_bytes_; }

 private:
  std::vector<Buffer> buffers_;
  size_t used_ = 0;  // of the last buffer
  size_t num_bytes_ = 0;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_MEMORY_H_
