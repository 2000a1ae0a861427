// Projections into the residual stream and the gated feed-forward layer.
#include <algorithm>

#include "plan/ops.h"

namespace octavo {
namespace {

int64_t num_chunks(const StepState& step) {
  return (step.input->num_tokens + kRowChunk - 1) / kRowChunk;
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

  void run(StepState& step, Worker& worker) override {
    const KernelTable& kernels = *context_.kernels;
    const int64_t width = context_.shape.padded_hidden();
    const int64_t tiles = linear_.num_tiles(), tasks = num_chunks(step) * tiles;
    float* dst = to_branch_ ? context_.branch : context_.x;
    GemmInput input(*src_, &worker.outliers);
    for_tasks(tasks, batch_size(tasks, worker), [&](int64_t task, int64_t next) {
      const int64_t t = task % tiles, begin = task / tiles * kRowChunk;
      const int64_t end = std::min<int64_t>(begin + kRowChunk, step.input->num_tokens);
      const Linear::Tile& tile = linear_.tile(t);
      const uint8_t* next_tile = next < 0 ? nullptr : linear_.tile(next % tiles).data;
      for_row_blocks(kernels, input.rows(begin, end), tile,
                     tile_bytes(tile.format, linear_.padded_k()), next_tile, begin, end,
                     [&](int64_t row, int64_t rows, float* out) {
                       for (int64_t r = 0; r < rows; ++r) {
                         float* to = dst + (row + r) * width + t * kTileCols;
                         float* from = out + r * kTileCols;
                         if (bias_ != nullptr) {
                           kernels.add_to(from, bias_->data() + t * kTileCols, kTileCols);
                         }
                         if (to_branch_) {
                           std::copy(from, from + kTileCols, to);
                         } else {
                           kernels.add_to(to, from, kTileCols);
                         }
                       }
                     });
    });
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

  void run(StepState& step, Worker& worker) override {
    const int64_t pairs = linear_.num_tiles() / 2, tasks = num_chunks(step) * pairs;
    GemmInput input(*src_, &worker.outliers);
    for_tasks(tasks, batch_size(tasks, worker), [&](int64_t task, int64_t next) {
      const int64_t begin = task / pairs * kRowChunk;
      const int64_t end = std::min<int64_t>(begin + kRowChunk, step.input->num_tokens);
      pair(input.rows(begin, end), task % pairs, next < 0 ? -1 : next % pairs, begin, end);
    });
  }

 private:
  // Gate rows are kept until the up rows of the same block are there: 256 rows x 32 floats.
  void pair(const ActView& acts, int64_t i, int64_t next, int64_t begin, int64_t end) const {
    const KernelTable& kernels = *context_.kernels;
    const Linear::Tile &gate = linear_.tile(2 * i), &up = linear_.tile(2 * i + 1);
    const uint8_t* next_tile = next < 0 ? nullptr : linear_.tile(2 * next).data;
    const int64_t k = linear_.padded_k();
    alignas(64) float gates[kRowChunk * kTileCols];
    for_row_blocks(kernels, acts, gate, tile_bytes(up.format, k), up.data, begin, end,
                   [&](int64_t row, int64_t rows, float* out) {
                     add_bias(2 * i, rows, out);
                     std::copy(out, out + rows * kTileCols, gates + (row - begin) * kTileCols);
                   });
    for_row_blocks(kernels, acts, up, tile_bytes(gate.format, k), next_tile, begin, end,
                   [&](int64_t row, int64_t rows, float* out) {
                     add_bias(2 * i + 1, rows, out);
                     for (int64_t r = 0; r < rows; ++r) {
                       float* g = gates + (row - begin + r) * kTileCols;
                       kernels.gate(activation_, g, out + r * kTileCols, g);
                       kernels.store_acts(dst_->format(), g, 1, dst_->buffer(),
                                          dst_->chunk(row + r, i * kTileCols));
                     }
                   });
  }

  void add_bias(int64_t tile, int64_t rows, float* out) const {
    if (bias_ == nullptr) return;
    for (int64_t r = 0; r < rows; ++r) {
      context_.kernels->add_to(out + r * kTileCols, bias_->data() + tile * kTileCols, kTileCols);
    }
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
