// What one step computes, as flat arrays that the caller owns for the length of the call.
#ifndef OCTAVO_PLAN_STEP_H_
#define OCTAVO_PLAN_STEP_H_

#include <cstdint>

namespace octavo {

// The tokens of one sequence in a step. They are rows first_row .. first_row + num_tokens - 1.
struct SequenceStep {
  int32_t first_row;
  int32_t num_tokens;
  int32_t first_position;
  int32_t first_block;  // offset of its block table in StepInput::block_tables
};

// A row whose logits are needed: for draws, for the log-probability of a given token, or both.
struct RowRequest {
  int32_t row;
  int32_t first_draw;
  int32_t num_draws;
  int32_t target;     // token whose log-probability is wanted; -1: none
  int32_t num_top;    // alternatives to report for the target
  int32_t first_top;  // where they go in StepOutput::top_ids
};

// Stretch of StepInput::ids.
struct IdRange {
  int32_t begin;
  int32_t count;  // -1: absent
};

// One token to draw. The rules and their order are in sampler.h.
struct Draw {
  uint64_t seed;
  int32_t output_index;
  int32_t top_k;         // 0: off
  int32_t num_logprobs;  // -1: none wanted
  int32_t first_top;
  float temperature;  // 0: greedy
  float top_p;
  float min_p;
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  IdRange prompt;  // only if a penalty needs them
  IdRange output;
  IdRange allowed;  // count -1: all
  IdRange banned;
  IdRange biased;  // ids; their values in StepInput::bias_values, from first_bias
  int32_t first_bias;
  int32_t mask;  // number of its mask in StepInput::masks; -1: none

  // Whether the largest of the raw logits that its mask leaves is the answer.
  bool is_plain_greedy() const {
    return temperature == 0.0f && num_logprobs < 0 && repetition_penalty == 1.0f &&
           frequency_penalty == 0.0f && presence_penalty == 0.0f && allowed.count < 0 &&
           banned.count <= 0 && biased.count <= 0;
  }
};

// Words of a mask: one for each tile of the head's columns.
constexpr int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

struct StepInput {
  const int32_t* token_ids = nullptr;  // [T]
  int32_t num_tokens = 0;
  const SequenceStep* sequences = nullptr;
  int32_t num_sequences = 0;
  const int32_t* block_tables = nullptr;
  const int32_t* copies = nullptr;  // [num_copies][2] source, destination
  int32_t num_copies = 0;
  const RowRequest* rows = nullptr;
  int32_t num_rows = 0;
  const int32_t* hidden_rows = nullptr;  // rows whose last hidden state is wanted
  int32_t num_hidden_rows = 0;
  const Draw* draws = nullptr;
  int32_t num_draws = 0;
  const int32_t* ids = nullptr;
  const float* bias_values = nullptr;
  const uint32_t* masks = nullptr;  // [masks][mask_words(V)]: bit id % 32 of word id / 32
  float* logits = nullptr;          // [num_rows][V], if the caller wants them
};

enum DrawError : int32_t { kNoError = 0, kNotFinite = 1, kNothingLeft = 2 };

struct StepOutput {
  int32_t* tokens = nullptr;   // [num_draws]
  int32_t* errors = nullptr;   // [num_draws] DrawError
  float* logprobs = nullptr;   // [num_draws], then [num_rows] for the targets
  int32_t* ranks = nullptr;    // likewise
  int32_t* top_ids = nullptr;  // by first_top
  float* top_logprobs = nullptr;
  float* hidden = nullptr;  // [num_hidden_rows][E], after the last norm
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_STEP_H_
