#include "plan/probes.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "plan/memory.h"
#include "plan/thread_pool.h"

namespace octavo {
namespace {

constexpr int kPasses = 5;
constexpr double kPeakPassSeconds = 0.02;
constexpr int kBarriersPerRound = 200;  // so few that most rounds see no interrupt
constexpr int kBarrierPools = 8;
constexpr int kBarrierRounds = 101;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void require_thread(int num_threads) {
  if (num_threads < 1) throw std::invalid_argument("a probe needs a thread");
}

}  // namespace

double read_bandwidth(int64_t num_bytes, int num_threads) {
  require_thread(num_threads);
  if (num_bytes < 64 * num_threads) {
    throw std::invalid_argument("read_bandwidth needs 64 bytes for each thread");
  }
  Buffer buffer(num_bytes);
  std::fill(buffer.data(), buffer.data() + num_bytes, uint8_t{1});  // real pages, not the zero page
  ThreadPool pool(num_threads);
  std::vector<uint64_t> sums(num_threads * 8);
  std::vector<double> rates;
  for (int pass = 0; pass <= kPasses; ++pass) {
    const auto start = Clock::now();
    pool.run([&](int t) {
      const int64_t share = num_bytes / num_threads / 64 * 8;  // 8-byte words, whole lines
      const uint64_t* p = buffer.as<uint64_t>() + t * share;
      uint64_t sum[8] = {};
      for (int64_t i = 0; i < share; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      for (int j = 0; j < 8; ++j) sums[t * 8] += sum[j];
    });
    if (pass > 0) rates.push_back(static_cast<double>(num_bytes) / seconds_since(start));
  }
  if (sums[0] == 0) throw std::logic_error("nothing was read");  // also keeps the sums alive
  return median(rates);
}

double barrier_latency(int num_threads) {
  require_thread(num_threads);
  // How long it takes also depends on where in the shared cache a pool's words lie: the best of
  // several pools that lie in different places.
  std::vector<std::unique_ptr<ThreadPool>> pools;
  double best = std::numeric_limits<double>::infinity();
  for (int p = 0; p < kBarrierPools; ++p) {
    ThreadPool& pool = *pools.emplace_back(std::make_unique<ThreadPool>(num_threads));
    std::vector<double> seconds;
    seconds.reserve(kBarrierRounds);
    pool.run([&](int t) {
      for (int round = 0; round <= kBarrierRounds; ++round) {
        const auto start = Clock::now();
        for (int i = 0; i < kBarriersPerRound; ++i) pool.barrier(t);
        // The first round also waits for threads that are still waking.
        if (t == 0 && round > 0) seconds.push_back(seconds_since(start) / kBarriersPerRound);
      }
    });
    best = std::min(best, median(seconds));
  }
  return best;
}

double operation_rate(const KernelTable& table, ActFormat format, int num_threads) {
  require_thread(num_threads);
  const auto peak = table.peak[static_cast<int>(format)];
  ThreadPool pool(num_threads);
  double best = 0.0;
  int64_t rounds = 1000;
  for (int pass = 0; pass < kPasses;) {
    std::vector<int64_t> done(num_threads * 8);
    const auto start = Clock::now();
    pool.run([&](int t) {
      // Zeros, which the kernel cannot know: nothing overflows.
      alignas(64) float in[16] = {};
      alignas(64) float out[16];
      done[t * 8] = peak(rounds, in, out);
    });
    const double seconds = seconds_since(start);
    if (seconds < kPeakPassSeconds) {
      rounds *= 2;  // too short to measure
      continue;
    }
    const int64_t operations = std::accumulate(done.begin(), done.end(), int64_t{0});
    best = std::max(best, static_cast<double>(operations) / seconds);
    ++pass;
  }
  return best;
}

}  // namespace octavo
