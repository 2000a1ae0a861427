// Projections into the residual stream and the gated feed-forward layer.
#include <algorithm>

#include "plan/ops.h"

namespace octavo {
namespace {

// Rows that a product is added to, fetched while those before them are: all that is in flight fits
// into a core's miss buffers.
constexpr int64_t kRowsAhead = 12;

void fetch_tile_row(const float* row) {
  __builtin_prefetch(row, 1);
  __builtin_prefetch(row + kLine / sizeof(float), 1);
}

class ProjectionOp final : public Op {
 public:
  ProjectionOp(const OpContext& context, const char* name, const Linear& linear,
               const FloatVector* bias, const Acts* src, bool to_branch)
      : Op(name),
        context_(context),
        linear_(linear),
        bias_(bias),
        src_(src),
        to_branch_(to_branch) {}

  void run(StepState&, Worker& worker) override {
    const KernelTable& kernels = *context_.kernels;
    const StepPart& part = *context_.part;
    const int64_t width = context_.shape.padded_hidden();
    const int64_t tiles = linear_.num_tiles(), tasks = part.num_chunks() * tiles;
    float* dst = to_branch_ ? context_.branch : context_.x;
    GemmInput input(kernels, *src_, &worker.outliers, &worker.beside);
    alignas(64) float out[kRowChunk * kTileCols];
    for_tasks_from_own(worker, tasks, batch_size(tasks, worker), [&](int64_t task, int64_t next) {
      const int64_t t = task % tiles;
      const auto [begin, end] = part.chunk(task / tiles);
      input.set_rows(begin, end);
      float* const column = dst + t * kTileCols;
      for (int64_t row = begin; row < std::min(begin + kRowsAhead, end); ++row) {
        fetch_tile_row(column + row * width);
      }
      input.multiply(linear_, t, next < 0 ? following_weights(worker) : linear_.lines(next % tiles),
                     out);
      for (int64_t row = begin; row < end; ++row) {
        if (row + kRowsAhead < end) fetch_tile_row(column + (row + kRowsAhead) * width);
        float* from = out + (row - begin) * kTileCols;
        float* to = column + row * width;
        if (bias_ != nullptr) kernels.add_to(from, bias_->data() + t * kTileCols, kTileCols);
        if (to_branch_) {
          std::copy(from, from + kTileCols, to);
        } else {
          kernels.add_to(to, from, kTileCols);
        }
      }
    });
  }

  Prefetch first_weights(const Worker& worker) const override {
    return linear_.lines(worker.index * batch_size(linear_.num_tiles(), worker) %
                         linear_.num_tiles());
  }

 private:
  const OpContext context_;
  const Linear& linear_;
  const FloatVector* const bias_;
  const Acts* const src_;
  const bool to_branch_;
};

class GateUpOp final : public Op {
 public:
  GateUpOp(const OpContext& context, const Linear& linear, const FloatVector* bias,
           Activation activation, const Acts* src, Acts* dst)
      : Op("gate_up"),
        context_(context),
        linear_(linear),
        bias_(bias),
        activation_(activation),
        src_(src),
        dst_(dst) {}

  void run(StepState&, Worker& worker) override {
    const StepPart& part = *context_.part;
    const int64_t pairs = linear_.num_tiles() / 2, tasks = part.num_chunks() * pairs;
    GemmInput input(*context_.kernels, *src_, &worker.outliers, &worker.beside);
    for_tasks_from_own(worker, tasks, batch_size(tasks, worker), [&](int64_t task, int64_t next) {
      const auto [begin, end] = part.chunk(task / pairs);
      input.set_rows(begin, end);
      pair(input, task % pairs,
           next < 0 ? following_weights(worker) : linear_.lines(2 * (next % pairs)), begin, end);
    });
  }

  Prefetch first_weights(const Worker& worker) const override {
    const int64_t pairs = linear_.num_tiles() / 2;
    return linear_.lines(2 * (worker.index * batch_size(pairs, worker) % pairs));
  }

 private:
  void pair(GemmInput& input, int64_t i, const Prefetch& next, int64_t begin, int64_t end) const {
    const KernelTable& kernels = *context_.kernels;
    alignas(64) float gates[kRowChunk * kTileCols];
    alignas(64) float ups[kRowChunk * kTileCols];
    input.multiply(linear_, 2 * i, linear_.lines(2 * i + 1), gates);
    input.multiply(linear_, 2 * i + 1, next, ups);
    const int64_t rows = end - begin;
    if (bias_ != nullptr) {
      for (int64_t row = 0; row < rows; ++row) {
        const float* bias = bias_->data() + 2 * i * kTileCols;
        kernels.add_to(gates + row * kTileCols, bias, kTileCols);
        kernels.add_to(ups + row * kTileCols, bias + kTileCols, kTileCols);
      }
    }
    kernels.gate(activation_, gates, ups, rows * kTileCols, gates);
    kernels.store_acts(dst_->format(), gates, rows, dst_->buffer(),
                       dst_->chunk(begin, i * kTileCols), dst_->k() / kGroup);
  }

  const OpContext context_;
  const Linear& linear_;
  const FloatVector* const bias_;
  const Activation activation_;
  const Acts* const src_;
  Acts* const dst_;
};

}  // namespace

std::unique_ptr<Op> make_projection(const OpContext& context, const char* name,
                                    const Linear& linear, const FloatVector* bias, const Acts* src,
                                    bool to_branch) {
  return std::make_unique<ProjectionOp>(context, name, linear, bias, src, to_branch);
}

std::unique_ptr<Op> make_gate_up(const OpContext& context, const Linear& linear,
                                 const FloatVector* bias, Activation activation, const Acts* src,
                                 Acts* dst) {
  return std::make_unique<GateUpOp>(context, linear, bias, activation, src, dst);
}

}  // namespace octavo
