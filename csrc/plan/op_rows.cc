// Ops that work on whole rows: the embedding and the norms.
#include <cmath>

#include "plan/ops.h"

namespace octavo {
namespace {

class EmbedOp final : public Op {
 public:
  EmbedOp(const OpContext& context, const Linear& embedding, float multiplier,
          std::vector<RopeTable> ropes)
      : Op("embed"),
        context_(context),
        embedding_(embedding),
        multiplier_(multiplier),
        ropes_(std::move(ropes)) {}

  void run(StepState& step, Worker&) override {
    const KernelTable& kernels = *context_.kernels;
    const int64_t width = context_.shape.padded_hidden();
    const StepPart& part = *context_.part;
    for_tasks(part.num_rows, part.row_batch(), [&](int64_t i, int64_t) {
      const int64_t row = part.first_row + i;
      const int32_t token = step.input->token_ids[row];
      const Linear::Tile& tile = embedding_.tile(token / kTileCols);
      float* x = context_.x + row * width;
      kernels.tile_column(tile.format, tile.data, width, token % kTileCols, x);
      if (multiplier_ != 1.0f) kernels.scale(x, multiplier_, width);
      rope_row(step, row);
    });
  }

 private:
  void rope_row(StepState& step, int64_t row) const {
    const int64_t half = context_.shape.head_dim / 2;
    for (size_t r = 0; r < ropes_.size(); ++r) {
      const int64_t offset = (static_cast<int64_t>(r) * context_.shape.max_tokens + row) * half;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = step.positions[row] * ropes_[r].inv_freq[i];
        step.cos[offset + i] = static_cast<float>(std::cos(angle) * ropes_[r].attention_factor);
        step.sin[offset + i] = static_cast<float>(std::sin(angle) * ropes_[r].attention_factor);
      }
    }
  }

  const OpContext context_;
  const Linear& embedding_;
  const float multiplier_;
  const std::vector<RopeTable> ropes_;
};

class NormOp final : public Op {
 public:
  NormOp(const OpContext& context, const FloatVector* post_weight, const FloatVector* weight,
         Acts* dst)
      : Op("norm"), context_(context), post_weight_(post_weight), weight_(weight), dst_(dst) {}

  void run(StepState&, Worker&) override {
    const KernelTable& kernels = *context_.kernels;
    const StepPart& part = *context_.part;
    const ModelShape& shape = context_.shape;
    const int64_t width = shape.padded_hidden();
    std::vector<float> normed(width);
    for_tasks(part.num_rows, part.row_batch(), [&](int64_t i, int64_t) {
      const int64_t row = part.first_row + i;
      float* x = context_.x + row * width;
      if (post_weight_ != nullptr) {
        kernels.rms_norm(context_.branch + row * width, post_weight_->data(), shape.norm_eps,
                         shape.hidden_size, width, normed.data());
        kernels.add_to(x, normed.data(), width);
      }
      if (dst_ != nullptr) {
        kernels.rms_norm(x, weight_->data(), shape.norm_eps, shape.hidden_size, width,
                         normed.data());
        kernels.store_acts(dst_->format(), normed.data(), width / kGroup, dst_->buffer(),
                           dst_->chunk(row, 0), 1);
      }
    });
  }

 private:
  const OpContext context_;
  const FloatVector* const post_weight_;
  const FloatVector* const weight_;
  Acts* const dst_;
};

}  // namespace

std::unique_ptr<Op> make_embed(const OpContext& context, const Linear& embedding, float multiplier,
                               const std::vector<RopeTable>& ropes) {
  return std::make_unique<EmbedOp>(context, embedding, multiplier, ropes);
}

std::unique_ptr<Op> make_norm(const OpContext& context, const FloatVector* post_weight,
                              const FloatVector* weight, Acts* dst) {
  return std::make_unique<NormOp>(context, post_weight, weight, dst);
}

}  // namespace octavo
