// Whole rows into int8. Ops that write activations piece by piece write floats; this one follows.
#include "plan/ops.h"

namespace octavo {
namespace {

class QuantizeOp final : public Op {
 public:
  QuantizeOp(const OpContext& context, const Acts* src, Acts* dst)
      : Op("quantize"), context_(context), src_(src), dst_(dst) {}

  void run(StepState&, Worker&) override {
    const StepPart& part = *context_.part;
    const int64_t k = dst_->k();
    for_tasks(part.num_rows, part.row_batch(), [&](int64_t i, int64_t) {
      const int64_t row = part.first_row + i;
      context_.kernels->store_acts(dst_->format(), src_->view().f32 + row * k, k / kGroup,
                                   dst_->buffer(), dst_->chunk(row, 0), 1);
    });
  }

 private:
  const OpContext context_;
  const Acts* const src_;
  Acts* const dst_;
};

}  // namespace

std::unique_ptr<Op> make_quantize(const OpContext& context, const Acts* src, Acts* dst) {
  return std::make_unique<QuantizeOp>(context, src, dst);
}

}  // namespace octavo
