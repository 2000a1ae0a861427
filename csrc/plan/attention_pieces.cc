#include "plan/attention_pieces.h"

#include <algorithm>
#include <numeric>

namespace octavo {
namespace {

// Keys read by the queries, roughly.
int64_t cost(int32_t first_position, int32_t num_tokens) {
  return int64_t{num_tokens} * (first_position + num_tokens);
}

int64_t cost(const AttentionPiece& piece) { return cost(piece.first_position, piece.num_tokens); }

int64_t cost(const SequenceStep& seq) { return cost(seq.first_position, seq.num_tokens); }

}  // namespace

void AttentionPieces::split(const StepInput& input, int32_t begin, int32_t end, int32_t most_tokens,
                            int num_shares) {
  const SequenceStep* sequences = input.sequences;
  order_.resize(end - begin);
  owner_.resize(input.num_sequences);
  load_.assign(num_shares, 0);
  std::iota(order_.begin(), order_.end(), begin);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t a, int32_t b) { return cost(sequences[a]) > cost(sequences[b]); });
  for (const int32_t s : order_) {
    const auto least = std::min_element(load_.begin(), load_.end());
    *least += cost(sequences[s]);
    owner_[s] = static_cast<int32_t>(least - load_.begin());
  }
  pieces_.clear();
  first_.assign(1, 0);
  for (int share = 0; share < num_shares; ++share) {
    for (const int32_t s : order_) {
      if (owner_[s] != share) continue;
      const SequenceStep& seq = sequences[s];
      for (int32_t i = 0; i < seq.num_tokens; i += most_tokens) {
        const int32_t count = std::min(most_tokens, seq.num_tokens - i);
        pieces_.push_back({s, seq.first_row + i, count, seq.first_position + i});
      }
    }
    std::stable_sort(
        pieces_.begin() + first_.back(), pieces_.end(),
        [](const AttentionPiece& a, const AttentionPiece& b) { return cost(a) > cost(b); });
    first_.push_back(static_cast<int64_t>(pieces_.size()));
  }
}

}  // namespace octavo
