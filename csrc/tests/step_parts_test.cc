// Which steps are run in two parts, how they are cut, and what is fetched for an attention.
#include "plan/step_parts.h"

#include <set>
#include <vector>

#include "plan/kv_feed.h"
#include "tests/check.h"

namespace octavo::test {
namespace {

struct Step {
  std::vector<SequenceStep> sequences;
  StepInput input;

  // `count` sequences that have `context` tokens and get `tokens` more.
  Step(int32_t count, int32_t context, int32_t tokens = 1) {
    for (int32_t s = 0; s < count; ++s) {
      sequences.push_back({s * tokens, tokens, context, 0});
    }
    input.sequences = sequences.data();
    input.num_sequences = count;
    input.num_tokens = count * tokens;
  }
};

constexpr LayerBytes kLayer{2 << 20, 768};
bool in_two(const Step& step, const LayerBytes& layer = kLayer, int threads = 2) {
  return pays_in_two(step.input, layer, threads);
}

}  // namespace

TEST(steps_of_many_sequences_with_much_to_attend_to_are_run_in_two_parts) {
  CHECK(in_two(Step(32, 330)) && in_two(Step(64, 100)) && in_two(Step(256, 2000)), "many");
  CHECK(!in_two(Step(31, 330)), "too few rows");
  CHECK(!in_two(Step(64, 20)), "little to attend to");
  CHECK(in_two(Step(16, 400, 8)) && !in_two(Step(16, 400, 9)), "drafts, and prompts");
  CHECK(!in_two(Step(64, 330), {(4 << 20) + 1, 768}), "weights that no cache holds");
  CHECK(in_two(Step(64, 330), {(4 << 20) + 1, 768}, 3), "with another thread's cache");
  Step gap(64, 330);
  gap.sequences[40].first_row = 63;
  CHECK(!in_two(gap), "rows in another order");
}

TEST(parts_hold_each_sequence_once) {
  for (int32_t count : {2, 3, 33}) {
    Step step(count, 50, 2);
    StepParts parts;
    parts.divide(step.input, true, 1, 2);
    CHECK(parts.count() == 2 && parts[0].first_row == 0 &&
              parts[1].first_row == parts[0].num_rows &&
              parts[0].num_rows + parts[1].num_rows == 2 * count,
          "%d and %d rows", parts[0].num_rows, parts[1].num_rows);
    std::set<int32_t> rows;
    for (int p = 0; p < 2; ++p) {
      for (int share = 0; share < 2; ++share) {
        for (const AttentionPiece& piece : parts[p].pieces.share(share)) {
          CHECK(piece.first_row >= parts[p].first_row &&
                    piece.first_row < parts[p].first_row + parts[p].num_rows,
                "row %d in part %d", piece.first_row, p);
          CHECK(rows.insert(piece.first_row).second, "row %d twice", piece.first_row);
        }
      }
    }
    CHECK(static_cast<int32_t>(rows.size()) == 2 * count, "%zu rows", rows.size());
    parts.divide(step.input, false, 1, 2);
    CHECK(parts.count() == 1 && parts[0].num_rows == 2 * count && parts[1].num_rows == 0, "one");
  }
}

// Blocks of 16 tokens and two lines; block i of the table is i + 100.
TEST(the_feed_hands_out_each_whole_block_that_a_query_sees) {
  std::vector<int32_t> table(64);
  for (int32_t i = 0; i < 64; ++i) table[i] = i + 100;
  for (int32_t window : {0, 40}) {
    Step step(20, 100);
    step.input.block_tables = table.data();
    StepParts parts;
    parts.divide(step.input, false, 8, 1);
    std::vector<uint8_t> memory(200 * 2 * kLine);
    KvLayer layer;
    layer.base = memory.data();
    layer.block_stride = 2 * kLine;
    layer.block_size = 16;
    KvFeed feed;
    feed.start(step.input, parts[0].pieces.share(0), layer, window);
    // Of 100 keys, blocks 0 to 5 are whole; of the last 40, with the query's, from block 3 on.
    const int32_t first = window == 0 ? 0 : (100 - 40 + 1) / 16;
    for (int64_t piece = 0; piece < 20; ++piece) {
      for (int32_t block = first; block < 6; ++block) {
        const Prefetch whole = feed.take(5);
        CHECK(whole.begin - layer.base == (100 + block) * 2 * kLine && whole.num_lines == 2,
              "block %d, window %d: %ld lines", block, window, static_cast<long>(whole.num_lines));
      }
      CHECK(feed.num_pieces_done() >= piece, "%ld", static_cast<long>(feed.num_pieces_done()));
    }
    CHECK(feed.take(1).num_lines == 0 && feed.num_pieces_done() == 20, "the end");
  }
}

}  // namespace octavo::test
