// The probes: peaks really compute what they count, and every figure is one.
#include "plan/probes.h"

#include <algorithm>
#include <cstring>

#include "tests/check.h"

namespace octavo::test {
namespace {

const KernelTable& table() { return *kernels(); }

// The sum of all chains after `rounds` rounds on inputs of one bit pattern, and how many chains.
float run_peak(ActFormat format, int64_t rounds, uint32_t pattern, int64_t ops_per_product,
               int64_t* chains) {
  Aligned<float> in(16), out(16);
  for (int i = 0; i < 16; ++i) std::memcpy(&in[i], &pattern, 4);
  const int64_t operations = table().peak[static_cast<int>(format)](rounds, in.get(), out.get());
  *chains = operations / (rounds * 16 * ops_per_product);
  for (int i = 1; i < 16; ++i) CHECK(out[i] == out[0], "lane %d", i);
  return out[0];
}

TEST(peaks_compute_what_they_count) {
  for (int64_t rounds : {1, 7, 64}) {
    int64_t chains = 0;
    float sum = run_peak(ActFormat::kF32, rounds, 0x3f800000, 2, &chains);  // 1.0
    CHECK(sum == static_cast<float>(chains * (1 + rounds)), "f32: %f", sum);
    sum = run_peak(ActFormat::kBf16, rounds, 0x40004000, 4, &chains);  // pairs of 2.0
    // Chains begin at the float of that pattern, 2 + 2^-8, which is added exactly.
    CHECK(sum == static_cast<float>(chains) * (2.00390625f + 8.0f * rounds), "bf16: %f", sum);
    sum = run_peak(ActFormat::kQ8, rounds, 0x01010101, 8, &chains);  // bytes of 1
    CHECK(sum == static_cast<float>(chains * 4 * rounds + chains * (chains - 1) / 2), "int8: %f",
          sum);
  }
}

TEST(probes_give_figures) {
  CHECK(read_bandwidth(1 << 20, 2) > 1e7, "read_bandwidth");
  CHECK(barrier_latency(2) > 0, "barrier_latency");
  for (ActFormat format : {ActFormat::kF32, ActFormat::kBf16, ActFormat::kQ8}) {
    CHECK(operation_rate(table(), format, 1) > 1e6, "operation_rate");
  }
}

}  // namespace
}  // namespace octavo::test
