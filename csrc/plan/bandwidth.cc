#include "plan/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "plan/memory.h"
#include "plan/thread_pool.h"

namespace octavo {

double read_bandwidth(int64_t num_bytes, int num_threads) {
  if (num_bytes < 64 * num_threads || num_threads < 1) {
    throw std::invalid_argument("read_bandwidth needs a thread and 64 bytes for each");
  }
  Buffer buffer(num_bytes);
  std::fill(buffer.data(), buffer.data() + num_bytes, uint8_t{1});  // real pages, not the zero page
  ThreadPool pool(num_threads);
  std::vector<uint64_t> sums(num_threads * 8);
  std::vector<double> rates;
  for (int pass = 0; pass < 6; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int t) {
      const int64_t share = num_bytes / num_threads / 64 * 8;  // 8-byte words, whole lines
      const uint64_t* p = buffer.as<uint64_t>() + t * share;
      uint64_t sum[8] = {};
      for (int64_t i = 0; i < share; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      for (int j = 0; j < 8; ++j) sums[t * 8] += sum[j];
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (pass > 0) rates.push_back(static_cast<double>(num_bytes) / seconds.count());
  }
  if (sums[0] == 0) throw std::logic_error("nothing was read");  // also keeps the sums alive
  std::nth_element(rates.begin(), rates.begin() + 2, rates.end());
  return rates[2];
}

}  // namespace octavo
