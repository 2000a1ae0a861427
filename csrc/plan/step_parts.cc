#include "plan/step_parts.h"

namespace octavo {
namespace {

// As measured (docs/decisions/0053-two-parts.md). With fewer rows GEMMs wait for weights
// themselves, and each part has twice the ops to wait for.
constexpr int32_t kMinRows = 32;
constexpr int32_t kMostTokensEach = 8;
constexpr int64_t kMostWeightsPerThread = int64_t{2} << 20;
constexpr int64_t kLeastKvPerWeights = 2;

bool rows_follow_each_other(const StepInput& input) {
  int32_t row = 0;
  for (int32_t s = 0; s < input.num_sequences; ++s) {
    if (input.sequences[s].first_row != row) return false;
    row += input.sequences[s].num_tokens;
  }
  return true;
}

}  // namespace

bool pays_in_two(const StepInput& input, const LayerBytes& layer, int num_threads) {
  if (input.num_tokens < kMinRows || layer.weights > kMostWeightsPerThread * num_threads) {
    return false;
  }
  int64_t keys = 0;
  for (int32_t s = 0; s < input.num_sequences; ++s) {
    const SequenceStep& seq = input.sequences[s];
    if (seq.num_tokens > kMostTokensEach) return false;
    keys += seq.first_position + seq.num_tokens;
  }
  return keys * layer.kv_per_token >= kLeastKvPerWeights * layer.weights &&
         rows_follow_each_other(input);
}

void StepParts::divide(const StepInput& input, bool in_two, int32_t most_tokens, int num_shares) {
  count_ = in_two ? 2 : 1;
  int32_t first = 0, first_row = 0;
  for (int p = 0; p < kMaxParts; ++p) {
    const int32_t end = p + 1 < count_ ? input.num_sequences / 2 : input.num_sequences;
    const int32_t end_row =
        end < input.num_sequences ? input.sequences[end].first_row : input.num_tokens;
    parts_[p].first_row = first_row;
    parts_[p].num_rows = end_row - first_row;
    parts_[p].pieces.split(input, first, end, most_tokens, num_shares);
    first = end;
    first_row = end_row;
  }
}

}  // namespace octavo
