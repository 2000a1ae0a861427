// What this machine's memory gives, measured now; benchmarks print it beside their figures.
#ifndef OCTAVO_PLAN_BANDWIDTH_H_
#define OCTAVO_PLAN_BANDWIDTH_H_

#include <cstdint>

namespace octavo {

// Bytes per second read by `num_threads` threads from a buffer of `num_bytes`; median of five
// passes.
double read_bandwidth(int64_t num_bytes, int num_threads);

}  // namespace octavo

#endif  // OCTAVO_PLAN_BANDWIDTH_H_
