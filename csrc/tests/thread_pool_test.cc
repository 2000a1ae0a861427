// The pool: what all threads do is done, whoever comes first, however long they wait for each
// other.
#include "plan/thread_pool.h"

#include <atomic>
#include <chrono>
#include <random>

#include "tests/check.h"

namespace octavo::test {
namespace {

using Clock = std::chrono::steady_clock;

// Computes, as a kernel would: a thread that slept would let the other one's core go.
void be_busy(std::chrono::nanoseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

// One thread is late by as much as the others take to fall asleep, give or take: who does so just
// when the late one arrives must be woken all the same. Takes for ever where it is not; what
// wake_all guards against is too rare to be sure of meeting it here.
TEST(who_falls_asleep_is_woken) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> late_ns(5'000, 60'000);
  for (const int num_threads : {2, 3}) {
    ThreadPool pool(num_threads);
    std::atomic<int> num_done{0};
    for (int run = 0; run < 3'000; ++run) {
      const std::chrono::nanoseconds late(late_ns(random));
      const int late_thread = static_cast<int>(random() % num_threads);
      pool.run([&](int thread) {
        if (thread == late_thread) be_busy(late);
        pool.barrier(thread);
        if (thread != late_thread) be_busy(late);
        num_done.fetch_add(1, std::memory_order_relaxed);
      });
      CHECK(num_done.load() == (run + 1) * num_threads, "run %d: %d", run, num_done.load());
    }
  }
}

// Between runs the others sleep, and begin the next one.
TEST(who_sleeps_between_runs_begins_the_next) {
  ThreadPool pool(3);
  std::atomic<int> num_done{0};
  for (int run = 0; run < 200; ++run) {
    be_busy(std::chrono::microseconds(2 * run));
    pool.run([&](int) { num_done.fetch_add(1, std::memory_order_relaxed); });
  }
  CHECK(num_done.load() == 600, "%d", num_done.load());
}

}  // namespace
}  // namespace octavo::test
