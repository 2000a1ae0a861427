// The output head: logits of the rows that need them, in slices, and what is drawn from them.
//
// A row that only wants its most likely token never has its logits written to memory: the largest
// of each tile is kept per thread and merged, by value and then by lower token id, which any order
// of tiles gives alike. A tile has as many columns as a word of a mask has bits.
#include <algorithm>
#include <cstring>
#include <limits>

#include "plan/ops.h"

namespace octavo {
namespace {

// Shared by the three ops.
struct HeadState {
  HeadState(const OpContext& c, const Linear& l, std::vector<Worker>* w)
      : context(c),
        linear(l),
        workers(w),
        acts(kHeadRows, c.shape.padded_hidden(), l.acts(), kHeadOutlierShare),
        logits_memory(sizeof(float) * kHeadRows * stride()) {}

  int64_t stride() const { return linear.num_tiles() * kTileCols; }
  float* logits(int64_t row) const { return logits_memory.as<float>() + row * stride(); }
  const RowRequest& request(const StepState& step, int64_t row) const {
    return step.input->rows[step.first_head_row + row];
  }
  bool is_plain(const StepState& step, int64_t row) const {
    const RowRequest& r = request(step, row);
    return step.input->logits == nullptr && r.target < 0 && r.num_draws == 1 &&
           step.input->draws[r.first_draw].is_plain_greedy();
  }

  // The mask of a plain row; null: none.
  const uint32_t* mask(const StepState& step, int64_t row) const {
    const int32_t number = step.input->draws[request(step, row).first_draw].mask;
    return number < 0 ? nullptr : step.input->masks + number * mask_words(context.shape.vocab_size);
  }

  const OpContext context;
  const Linear& linear;
  std::vector<Worker>* const workers;
  Acts acts;
  Buffer logits_memory;
};

class HeadNormOp final : public Op {
 public:
  HeadNormOp(std::shared_ptr<HeadState> head, const FloatVector& weight)
      : Op("head_norm"), head_(std::move(head)), weight_(weight) {}

  void run(StepState& step, Worker&) override {
    const OpContext& context = head_->context;
    const int64_t width = context.shape.padded_hidden();
    std::vector<float> normed(width);
    for_tasks(step.num_head_rows, 1, [&](int64_t row, int64_t) {
      const float* x = context.x + head_->request(step, row).row * width;
      context.kernels->rms_norm(x, weight_.data(), context.shape.norm_eps,
                                context.shape.hidden_size, width, normed.data());
      context.kernels->store_acts(head_->acts.format(), normed.data(), width / kGroup,
                                  head_->acts.buffer(), head_->acts.chunk(row, 0), 1);
    });
  }

 private:
  const std::shared_ptr<HeadState> head_;
  const FloatVector& weight_;
};

class HeadLogitsOp final : public Op {
 public:
  explicit HeadLogitsOp(std::shared_ptr<HeadState> head)
      : Op("head_logits"), head_(std::move(head)) {}

  void run(StepState& step, Worker& worker) override {
    const Linear& linear = head_->linear;
    const int64_t tiles = linear.num_tiles();
    GemmInput input(*head_->context.kernels, head_->acts, &worker.outliers, &worker.beside);
    input.set_rows(0, step.num_head_rows);
    alignas(64) float out[kHeadRows * kTileCols];
    bool plain[kHeadRows];
    const uint32_t* mask[kHeadRows];
    for (int64_t row = 0; row < step.num_head_rows; ++row) {
      plain[row] = head_->is_plain(step, row);
      mask[row] = plain[row] ? head_->mask(step, row) : nullptr;
    }
    for_tasks(tiles, batch_size(tiles, worker), [&](int64_t t, int64_t next) {
      input.multiply(linear, t, next < 0 ? Prefetch{} : linear.lines(next), out);
      for (int64_t row = 0; row < step.num_head_rows; ++row) {
        float* logits = out + row * kTileCols;
        if (plain[row]) {
          keep_best(t, mask[row], logits, &worker.best[row]);
        } else {
          std::memcpy(head_->logits(row) + t * kTileCols, logits, kTileCols * sizeof(float));
        }
      }
    });
  }

 private:
  int64_t num_columns(int64_t tile) const {
    return std::min<int64_t>(kTileCols, head_->context.shape.vocab_size - tile * kTileCols);
  }

  // A thread meets its tiles in rising order, as the kernels want them.
  void keep_best(int64_t tile, const uint32_t* mask, float* logits, BestToken* best) const {
    const KernelTable& kernels = *head_->context.kernels;
    const int32_t first = static_cast<int32_t>(tile * kTileCols);
    if (mask == nullptr) {
      kernels.keep_best(logits, num_columns(tile), first, best);
    } else {
      kernels.keep_best_allowed(logits, num_columns(tile), mask[tile], first, best);
    }
  }

  const std::shared_ptr<HeadState> head_;
};

class FinishOp final : public Op {
 public:
  explicit FinishOp(std::shared_ptr<HeadState> head) : Op("finish"), head_(std::move(head)) {}

  void run(StepState& step, Worker& worker) override {
    for_tasks(step.num_head_rows, 1, [&](int64_t row, int64_t) {
      if (head_->is_plain(step, row)) {
        merge_best(step, row);
      } else {
        use_logits(step, worker, row);
      }
    });
  }

 private:
  void merge_best(StepState& step, int64_t row) const {
    BestToken best{-std::numeric_limits<float>::infinity(), 0, true};
    bool drawable = true;
    for (const Worker& w : *head_->workers) {
      const BestToken& b = w.best[row];
      drawable &= b.drawable;
      if (b.value > best.value || (b.value == best.value && b.token < best.token)) best = b;
    }
    const int32_t draw = head_->request(step, row).first_draw;
    step.output->tokens[draw] = best.token;
    const bool is_left = best.value != -std::numeric_limits<float>::infinity();
    step.output->errors[draw] = !drawable ? kNotFinite : is_left ? kNoError : kNothingLeft;
  }

  void use_logits(StepState& step, Worker& worker, int64_t row) const {
    const StepInput& input = *step.input;
    StepOutput& output = *step.output;
    const RowRequest& request = head_->request(step, row);
    const float* logits = head_->logits(row);
    if (input.logits != nullptr) {
      const int64_t vocab = head_->context.shape.vocab_size;
      std::memcpy(input.logits + (step.first_head_row + row) * vocab, logits,
                  vocab * sizeof(float));
    }
    Sampler& sampler = *worker.sampler;
    for (int32_t d = request.first_draw; d < request.first_draw + request.num_draws; ++d) {
      const Draw& draw = input.draws[d];
      output.errors[d] = sampler.draw(logits, draw, input, &output.tokens[d]);
      if (output.errors[d] == kNoError && draw.num_logprobs >= 0) {
        sampler.logprobs(logits, output.tokens[d], draw.num_logprobs, &output.logprobs[d],
                         &output.ranks[d], output.top_ids + draw.first_top,
                         output.top_logprobs + draw.first_top);
      }
    }
    if (request.target >= 0) {
      const int64_t slot = input.num_draws + step.first_head_row + row;
      sampler.logprobs(logits, request.target, request.num_top, &output.logprobs[slot],
                       &output.ranks[slot], output.top_ids + request.first_top,
                       output.top_logprobs + request.first_top);
    }
  }

  const std::shared_ptr<HeadState> head_;
};

}  // namespace

Head make_head(const OpContext& context, const Linear& linear, const FloatVector& norm_weight,
               std::vector<Worker>* workers) {
  auto state = std::make_shared<HeadState>(context, linear, workers);
  return {std::make_unique<HeadNormOp>(state, norm_weight), std::make_unique<HeadLogitsOp>(state),
          std::make_unique<FinishOp>(state), state->acts.num_bytes() + state->logits_memory.size()};
}

}  // namespace octavo
