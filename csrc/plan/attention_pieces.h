// How the attention of a step is cut into pieces, and which thread is to begin with which.
#ifndef OCTAVO_PLAN_ATTENTION_PIECES_H_
#define OCTAVO_PLAN_ATTENTION_PIECES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "plan/step.h"

namespace octavo {

// Query tokens [first_row, first_row + num_tokens) of a sequence.
struct AttentionPiece {
  int32_t sequence;
  int32_t first_row;
  int32_t num_tokens;
  int32_t first_position;

  bool is_first(const StepInput& input) const {
    return first_row == input.sequences[sequence].first_row;
  }
};

// Each sequence belongs to the share of one thread, which fetches its keys and values before it
// reads them: where threads have caches of their own, what one fetches is of no use to another.
// Shares are about equal; who is done with its own helps the others.
class AttentionPieces {
 public:
  // Pieces of at most `most_tokens` query tokens, of the sequences [begin, end) of a step.
  void split(const StepInput& input, int32_t begin, int32_t end, int32_t most_tokens,
             int num_shares);

  int64_t num_pieces() const { return static_cast<int64_t>(pieces_.size()); }
  int num_shares() const { return static_cast<int>(first_.size()) - 1; }
  // Longest first, so that no thread begins a long piece when the others are done.
  std::span<const AttentionPiece> share(int i) const {
    return {pieces_.data() + first_[i], pieces_.data() + first_[i + 1]};
  }

 private:
  std::vector<AttentionPiece> pieces_;  // share after share
  std::vector<int64_t> first_;          // [shares + 1]
  std::vector<int32_t> order_;          // sequences, costliest first
  std::vector<int32_t> owner_;          // [sequences]
  std::vector<int64_t> load_;           // [shares]
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_ATTENTION_PIECES_H_
