// What this machine gives, measured now; benchmarks print it beside their figures.
#ifndef OCTAVO_PLAN_PROBES_H_
#define OCTAVO_PLAN_PROBES_H_

#include <cstdint>

#include "kernels/kernel_table.h"

namespace octavo {

// Bytes per second read by `num_threads` threads from a buffer of `num_bytes`; median of five
// passes.
double read_bandwidth(int64_t num_bytes, int num_threads);

// Seconds that a barrier of `num_threads` threads takes: the median of many rounds, in the best of
// several pools.
double barrier_latency(int num_threads);

// Multiplications and additions per second of `num_threads` threads that load nothing; the best
// of five passes, since a peak is what nothing disturbs.
double operation_rate(const KernelTable& table, ActFormat format, int num_threads);

}  // namespace octavo

#endif  // OCTAVO_PLAN_PROBES_H_
