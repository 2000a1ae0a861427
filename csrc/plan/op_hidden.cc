// The last hidden states of the rows whose meaning, not whose next token, is wanted.
#include <cstring>
#include <vector>

#include "plan/ops.h"

namespace octavo {
namespace {

class HiddenOp final : public Op {
 public:
  HiddenOp(const OpContext& context, const FloatVector& weight)
      : Op("hidden"), context_(context), weight_(weight) {}

  void run(StepState& step, Worker&) override {
    const StepInput& input = *step.input;
    const int64_t width = context_.shape.padded_hidden(), size = context_.shape.hidden_size;
    std::vector<float> normed(input.num_hidden_rows > 0 ? width : 0);
    for_tasks(input.num_hidden_rows, 1, [&](int64_t i, int64_t) {
      context_.kernels->rms_norm(context_.x + input.hidden_rows[i] * width, weight_.data(),
                                 context_.shape.norm_eps, size, width, normed.data());
      std::memcpy(step.output->hidden + i * size, normed.data(), size * sizeof(float));
    });
  }

 private:
  const OpContext context_;
  const FloatVector& weight_;
};

}  // namespace

std::unique_ptr<Op> make_hidden(const OpContext& context, const FloatVector& norm_weight) {
  return std::make_unique<HiddenOp>(context, norm_weight);
}

}  // namespace octavo
