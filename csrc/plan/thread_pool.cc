#include "plan/thread_pool.h"

namespace octavo {
namespace {

// Pauses between runs before sleeping: the next step usually comes at once, and waking costs 25
// microseconds.
constexpr int kSpinsBetweenRuns = 8000;
// Counters of different threads lie on different cache lines.
constexpr int kStride = 16;

}  // namespace

ThreadPool::ThreadPool(int num_threads)
    : size_(num_threads), arrived_(new Word[num_threads]), passed_(num_threads * kStride, 0) {
  for (int t = 1; t < num_threads; ++t) threads_.emplace_back([this, t] { worker(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  start_.value.fetch_add(1, std::memory_order_release);
  wake_all(start_.value);
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::run(const std::function<void(int)>& body) {
  body_ = &body;
  start_.value.fetch_add(1, std::memory_order_release);
  wake_all(start_.value);
  body(0);
  wait_for_all(++passed_[0]);  // nobody touches `body` or the step after this
}

void ThreadPool::arrive(int thread, uint32_t epoch) {
  arrived_[thread].value.store(epoch, std::memory_order_release);
  wake_all(arrived_[thread].value);
}

void ThreadPool::wait_for_all(uint32_t epoch) {
  for (int t = 1; t < size_; ++t) {
    wait_until(arrived_[t].value, [epoch](uint32_t reached) { return reached == epoch; });
  }
}

void ThreadPool::barrier(int thread) {
  const uint32_t epoch = ++passed_[thread * kStride];
  if (thread == 0) {
    wait_for_all(epoch);
    release_.value.store(epoch, std::memory_order_release);
    wake_all(release_.value);
  } else {
    arrive(thread, epoch);
    // The release may already be of a later barrier, never of an earlier one.
    wait_until(release_.value,
               [epoch](uint32_t passed) { return static_cast<int32_t>(passed - epoch) >= 0; });
  }
}

void ThreadPool::worker(int thread) {
  uint32_t seen = 0;
  while (true) {
    for (int i = 0; start_.value.load(std::memory_order_acquire) == seen; ++i) {
      if (i < kSpinsBetweenRuns) {
        pause_briefly();
      } else {
        start_.value.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    (*body_)(thread);
    arrive(thread, ++passed_[thread * kStride]);
  }
}

}  // namespace octavo
