// How the attention of a step is shared out among threads.
#include "plan/attention_pieces.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/check.h"

namespace octavo::test {
namespace {

int64_t cost(const SequenceStep& seq) {
  return int64_t{seq.num_tokens} * (seq.first_position + seq.num_tokens);
}

// Decoding sequences and chunks of prompts, mixed.
std::vector<SequenceStep> random_step(Random& random, int count) {
  std::vector<SequenceStep> sequences;
  int32_t row = 0;
  for (int s = 0; s < count; ++s) {
    const int32_t tokens = integer(random, 0, 3) == 0 ? integer(random, 2, 70) : 1;
    sequences.push_back({row, tokens, integer(random, 0, 900), 0});
    row += tokens;
  }
  return sequences;
}

void check_shares(const std::vector<SequenceStep>& sequences, int32_t most, int num_shares) {
  StepInput input;
  input.sequences = sequences.data();
  input.num_sequences = static_cast<int32_t>(sequences.size());
  AttentionPieces pieces;
  pieces.split(input, 0, input.num_sequences, most, num_shares);
  CHECK(pieces.num_shares() == num_shares, "%d", pieces.num_shares());

  std::set<int32_t> rows;
  std::vector<int> owner(sequences.size(), -1);
  std::vector<int64_t> load(num_shares, 0);
  int64_t num_pieces = 0, total = 0, largest = 0;
  for (int share = 0; share < num_shares; ++share) {
    int64_t before = INT64_MAX;
    for (const AttentionPiece& piece : pieces.share(share)) {
      const SequenceStep& seq = sequences[piece.sequence];
      const int64_t size = int64_t{piece.num_tokens} * (piece.first_position + piece.num_tokens);
      CHECK(size <= before, "a longer piece comes after a shorter one");
      before = size;
      CHECK(piece.num_tokens >= 1 && piece.num_tokens <= most, "%d", piece.num_tokens);
      CHECK(piece.first_position - seq.first_position == piece.first_row - seq.first_row, "row %d",
            piece.first_row);
      CHECK(piece.is_first(input) == (piece.first_row == seq.first_row), "row %d", piece.first_row);
      for (int32_t i = 0; i < piece.num_tokens; ++i) {
        CHECK(rows.insert(piece.first_row + i).second, "row %d twice", piece.first_row + i);
      }
      CHECK(owner[piece.sequence] < 0 || owner[piece.sequence] == share, "two owners");
      owner[piece.sequence] = share;
      ++num_pieces;
    }
  }
  int64_t num_rows = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    num_rows += sequences[s].num_tokens;
    load[owner[s]] += cost(sequences[s]);
    total += cost(sequences[s]);
    largest = std::max(largest, cost(sequences[s]));
  }
  CHECK(num_pieces == pieces.num_pieces(), "%ld pieces", static_cast<long>(num_pieces));
  CHECK(static_cast<int64_t>(rows.size()) == num_rows, "%zu rows", rows.size());
  // Each goes to the least loaded, so none is above the average by more than the last it got.
  const int64_t most_loaded = *std::max_element(load.begin(), load.end());
  CHECK(most_loaded <= total / num_shares + largest, "%ld of %ld", static_cast<long>(most_loaded),
        static_cast<long>(total));
}

TEST(attention_is_shared_out_whole_and_evenly) {
  Random random(11);
  for (int count : {1, 2, 7, 64, 300}) {
    const std::vector<SequenceStep> sequences = random_step(random, count);
    for (int32_t most : {1, 10, 64}) {
      for (int num_shares : {1, 2, 5, 32}) check_shares(sequences, most, num_shares);
    }
  }
}

TEST(no_sequences_no_pieces) {
  AttentionPieces pieces;
  pieces.split(StepInput(), 0, 0, 8, 3);
  CHECK(pieces.num_pieces() == 0 && pieces.num_shares() == 3 && pieces.share(2).empty(), "empty");
}

}  // namespace
}  // namespace octavo::test
