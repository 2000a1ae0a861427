// Rows of activations in one of four forms.
#ifndef OCTAVO_PLAN_ACTS_H_
#define OCTAVO_PLAN_ACTS_H_

#include <cstdint>

#include "kernels/kernel_table.h"
#include "plan/memory.h"

namespace octavo {

// What share of the energy of 32 numbers makes one an outlier (docs/decisions/0002-outliers.md):
// the less, the more accurate and the slower. The head decides the answer and is multiplied once;
// in the residual stream outliers are frequent but lie in few columns; in what attention and the
// gated layer return they may lie anywhere and count little.
constexpr float kHeadOutlierShare = 0.4f;
constexpr float kHiddenOutlierShare = 0.625f;
constexpr float kInnerOutlierShare = 0.8f;

// Room for the largest step is made at load.
class Acts {
 public:
  // k: numbers in a row, a multiple of 32. outlier_share: see ActBuffer; for kQ8.
  Acts(int64_t max_rows, int64_t k, ActFormat format, float outlier_share);

  ActFormat format() const { return format_; }
  int64_t k() const { return k_; }
  size_t num_bytes() const { return memory_.size(); }
  ActView view() const;
  // For KernelTable::store_acts: chunk offset of (row, column), column a multiple of 32.
  const ActBuffer& buffer() const { return buffer_; }
  int64_t chunk(int64_t row, int64_t column) const { return (row * k_ + column) / kGroup; }

 private:
  ActFormat format_;
  int64_t k_;
  Buffer memory_;
  ActBuffer buffer_;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_ACTS_H_
