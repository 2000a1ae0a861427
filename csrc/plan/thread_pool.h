// Threads that run one function together, with cheap barriers inside.
#ifndef OCTAVO_PLAN_THREAD_POOL_H_
#define OCTAVO_PLAN_THREAD_POOL_H_

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace octavo {

// Leaves the core's units to the other thread of the core, if it has one, and asks memory less
// often.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on most such processors
#endif
}

// Waits until done(value of word): spins for about as long as a wake-up takes, offers the processor
// to others for a moment, then sleeps. Sleeping also tells the system that this core is free, so
// that a thread that is waited for, and shares its core with another process, moves over. Whoever
// changes the word so that others can go on calls wake_all.
template <class Done>
void wait_until(std::atomic<uint32_t>& word, Done done) {
  constexpr int kPauses = 500;  // about 24 ns each on the machines measured
  constexpr int kYields = 20;
  for (int i = 0;; ++i) {
    const uint32_t value = word.load(std::memory_order_acquire);
    if (done(value)) return;
    if (i < kPauses) {
      pause_briefly();
    } else if (i < kPauses + kYields) {
      sched_yield();
    } else {
      word.wait(value, std::memory_order_acquire);
    }
  }
}

// Wakes those who sleep in wait_until, after the word was changed. g++'s notify_all first looks
// whether anybody sleeps, and nothing in it keeps that look behind the change, which may still lie
// in a store buffer: who falls asleep just then has seen the old value, is not seen, and sleeps for
// ever.
inline void wake_all(std::atomic<uint32_t>& word) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  word.notify_all();
}

// The caller is thread 0. Between runs the others spin for a short while, since the next step
// usually comes at once, then sleep, so that an idle server uses no processor.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Calls body(thread) on every thread and returns when all have returned. `body` must not throw.
  void run(const std::function<void(int)>& body);

  // Inside `run`: waits until every thread is here. What any wrote before is visible to all after.
  void barrier(int thread);

 private:
  // One word per cache line: no two threads write to the same line.
  struct alignas(64) Word {
    std::atomic<uint32_t> value{0};
  };

  void worker(int thread);
  void arrive(int thread, uint32_t epoch);
  void wait_for_all(uint32_t epoch);

  const int size_;
  Word start_;                       // number of runs begun; workers wait for it to grow
  Word release_;                     // barriers passed
  std::unique_ptr<Word[]> arrived_;  // per thread: barriers and ends of runs reached
  std::vector<uint32_t> passed_;     // per thread, its own: the same
  const std::function<void(int)>* body_ = nullptr;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_THREAD_POOL_H_
