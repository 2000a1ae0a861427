// What a thread multiplies in one op: rows of activations, with their outliers in lists.
#ifndef OCTAVO_PLAN_GEMM_INPUT_H_
#define OCTAVO_PLAN_GEMM_INPUT_H_

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "plan/acts.h"
#include "plan/beside.h"
#include "plan/linear.h"

namespace octavo {

constexpr int64_t kRowChunk = 256;  // activation rows of one piece of work: they stay in cache

// Whoever writes activations sees 32 of them at a time and only marks an outlier. Each reader
// collects the marks of the rows that it works on, by column: a column's weights are then unpacked
// once for all rows.
class GemmInput {
 public:
  // Memory that a thread keeps from op to op.
  struct Lists {
    std::vector<int32_t>
        place;  // [k] how many rows have an outlier there; then where the next goes
    std::vector<OutlierColumn> columns;
    std::vector<Outlier> outliers;
  };

  GemmInput(const KernelTable& kernels, const Acts& acts, Lists* lists, Beside* beside)
      : kernels_(kernels), acts_(acts), lists_(*lists), beside_(*beside) {}

  // Choose the rows [begin, end) that `multiply` takes, at most kRowChunk.
  void set_rows(int64_t begin, int64_t end);

  // out[rows][32] = rows * tile. Meanwhile `next`, the tile that comes after it, is fetched, and
  // what the thread is to fetch; after it comes what else it does.
  void multiply(const Linear& linear, int64_t tile, const Prefetch& next, float* out);

 private:
  void collect();
  template <class Body>
  void for_outliers(Body body) const;

  const KernelTable& kernels_;
  const Acts& acts_;
  Lists& lists_;
  Beside& beside_;
  int64_t begin_ = -1, end_ = -1;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_GEMM_INPUT_H_
