// Rows of a step that go through the layers together, and whether a step is run in two such parts.
#ifndef OCTAVO_PLAN_STEP_PARTS_H_
#define OCTAVO_PLAN_STEP_PARTS_H_

#include <array>
#include <cstdint>

#include "plan/attention_pieces.h"
#include "plan/gemm_input.h"
#include "plan/step.h"

namespace octavo {

// Whole sequences.
struct StepPart {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  AttentionPieces pieces;

  struct Rows {
    int64_t begin, end;
  };
  // What one piece of work takes of the rows.
  int64_t num_chunks() const { return (num_rows + kRowChunk - 1) / kRowChunk; }
  Rows chunk(int64_t i) const {
    const int64_t end = (i + 1) * kRowChunk;
    return {first_row + i * kRowChunk, first_row + (end < num_rows ? end : num_rows)};
  }
  // Rows claimed at once by an op on whole rows: a claim costs as much as a short row.
  int64_t row_batch() const { return num_rows < 16 ? 1 : 4; }
};

constexpr int kMaxParts = 2;

// Bytes that one layer reads.
struct LayerBytes {
  int64_t weights = 0;
  int64_t kv_per_token = 0;
};

// While one part multiplies, the other attends (Plan::run_layers). For steps that have many
// sequences with much to attend to, and few tokens of each; of layers whose weights the caches
// hold, since each part reads them.
bool pays_in_two(const StepInput& input, const LayerBytes& layer, int num_threads);

class StepParts {
 public:
  // All rows in one part, or about half of the sequences in each; attention is shared out in pieces
  // of at most `most_tokens` query tokens.
  void divide(const StepInput& input, bool in_two, int32_t most_tokens, int num_shares);

  int count() const { return count_; }
  const StepPart& operator[](int i) const { return parts_[i]; }

 private:
  std::array<StepPart, kMaxParts> parts_;
  int count_ = 1;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_STEP_PARTS_H_
