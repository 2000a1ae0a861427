// Queries, keys and values, and the attention over them.
#include <cstring>

#include "plan/ops.h"

namespace octavo {
namespace {

constexpr int64_t kRowsAhead = 6;  // of queries, whose places are fetched before they are written

class QkvOp final : public Op {
 public:
  QkvOp(const OpContext& context, const QkvWeights& weights, const Acts* src, int32_t layer,
        int32_t rope)
      : Op("qkv"),
        context_(context),
        weights_(weights),
        src_(src),
        kv_(context.kv_layer(layer)),
        rope_(rope),
        tiles_per_head_((context.shape.head_dim + kTileCols - 1) / kTileCols) {}

  void run(StepState& step, Worker& worker) override {
    const ModelShape& shape = context_.shape;
    const StepPart& part = *context_.part;
    // The KV heads come first: they are twice the work of a query head.
    const int64_t heads = shape.num_kv_heads + shape.num_heads;
    GemmInput input(*context_.kernels, *src_, &worker.outliers, &worker.beside);
    for_tasks_from_own(worker, part.num_chunks() * heads, 1, [&](int64_t task, int64_t next) {
      const auto [begin, end] = part.chunk(task / heads);
      input.set_rows(begin, end);
      const Prefetch lines =
          next < 0 ? following_weights(worker) : first_lines(matrix_head(next % heads));
      if (task % heads < shape.num_kv_heads) {
        key_value_head(step, worker, input, task % heads, begin, end, lines);
      } else {
        query_head(step, worker, input, task % heads - shape.num_kv_heads, begin, end, lines);
      }
    });
  }

  Prefetch first_weights(const Worker& worker) const override {
    const int64_t heads = context_.shape.num_kv_heads + context_.shape.num_heads;
    return first_lines(matrix_head(worker.index % heads));
  }

 private:
  int64_t head_width() const { return tiles_per_head_ * kTileCols; }

  // First matrix head that a task multiplies with: queries, keys, values lie one after another.
  int64_t matrix_head(int64_t task_head) const {
    const ModelShape& shape = context_.shape;
    return task_head < shape.num_kv_heads ? shape.num_heads + task_head
                                          : task_head - shape.num_kv_heads;
  }

  Prefetch first_lines(int64_t matrix_head) const {
    return weights_.linear->lines(matrix_head * tiles_per_head_);
  }

  // rows[.][head_width] = the head's projection of the rows [begin, end); `next` comes after it.
  void project(GemmInput& input, int64_t head, int64_t begin, int64_t end, const Prefetch& next,
               float* rows) const {
    const int64_t width = head_width();
    alignas(64) float out[kRowChunk * kTileCols];
    for (int64_t t = 0; t < tiles_per_head_; ++t) {
      const int64_t i = head * tiles_per_head_ + t;
      input.multiply(*weights_.linear, i,
                     t + 1 < tiles_per_head_ ? weights_.linear->lines(i + 1) : next, out);
      for (int64_t r = 0; r < end - begin; ++r) {
        std::memcpy(rows + r * width + t * kTileCols, out + r * kTileCols,
                    kTileCols * sizeof(float));
      }
    }
    if (weights_.bias != nullptr) {
      for (int64_t r = 0; r < end - begin; ++r) {
        context_.kernels->add_to(rows + r * width, weights_.bias->data() + head * width, width);
      }
    }
  }

  void norm_and_turn(const StepState& step, int64_t row, const FloatVector* norm, float* x) const {
    const ModelShape& shape = context_.shape;
    if (norm != nullptr) {
      context_.kernels->rms_norm(x, norm->data(), shape.norm_eps, shape.head_dim,
                                 shape.padded_head_dim(), x);
    }
    const int64_t half = shape.head_dim / 2;
    const int64_t offset = (int64_t{rope_} * shape.max_tokens + row) * half;
    context_.kernels->rope(x, step.cos.data() + offset, step.sin.data() + offset, half);
  }

  void query_head(StepState& step, Worker& worker, GemmInput& input, int64_t head, int64_t begin,
                  int64_t end, const Prefetch& next) const {
    const ModelShape& shape = context_.shape;
    const int64_t width = head_width(), dim = shape.padded_head_dim();
    float* rows = worker.rows.as<float>();
    project(input, head, begin, end, next, rows);
    // Scores are used as powers of 2.
    const float scale = shape.attention_scale * 1.4426950408889634f;
    float* const queries = context_.queries + head * dim;
    const int64_t stride = shape.num_heads * dim;
    for (int64_t row = begin; row < end; ++row) {
      if (row + kRowsAhead < end) {
        for (int64_t i = 0; i < dim; i += kLine / sizeof(float)) {
          __builtin_prefetch(queries + (row + kRowsAhead) * stride + i, 1);
        }
      }
      float* x = rows + (row - begin) * width;
      norm_and_turn(step, row, weights_.query_norm, x);
      context_.kernels->scale(x, scale, dim);
      std::memcpy(queries + row * stride, x, dim * sizeof(float));
    }
  }

  void key_value_head(StepState& step, Worker& worker, GemmInput& input, int64_t head,
                      int64_t begin, int64_t end, const Prefetch& next) const {
    const ModelShape& shape = context_.shape;
    const int64_t width = head_width();
    float* keys = worker.rows.as<float>();
    float* values = keys + kRowChunk * width;
    const int64_t key_head = shape.num_heads + head;
    const int64_t value_head = key_head + shape.num_kv_heads;
    project(input, key_head, begin, end, first_lines(value_head), keys);
    project(input, value_head, begin, end, next, values);
    for (int64_t row = begin; row < end; ++row) {
      norm_and_turn(step, row, weights_.key_norm, keys + (row - begin) * width);
      context_.kernels->write_kv(kv_, step.blocks[row], step.positions[row] % shape.block_size,
                                 static_cast<int32_t>(head), keys + (row - begin) * width,
                                 values + (row - begin) * width);
    }
  }

  const OpContext context_;
  const QkvWeights weights_;
  const Acts* const src_;
  const KvLayer kv_;
  const int32_t rope_;
  const int64_t tiles_per_head_;
};

class AttentionOp final : public Attention {
 public:
  AttentionOp(const OpContext& context, int32_t layer, int32_t window, Acts* dst)
      : Attention("attention"),
        context_(context),
        kv_(context.kv_layer(layer)),
        window_(window),
        dst_(dst),
        claims_(context.num_threads) {}

  int64_t items_per_piece() const override { return context_.shape.num_kv_heads; }

  void start_feed(const StepState& step, const Worker& worker, KvFeed* feed) const override {
    feed->start(*step.input, context_.part->pieces.share(worker.index), kv_, window_);
  }

  bool attend_one(const StepState& step, Worker& worker) override {
    return claim_one(claims_[worker.index], num_items(worker.index), num_items(),
                     [&](int64_t i) { attend(step, worker, worker.index, i); });
  }

  void run(StepState& step, Worker& worker) override {
    for (int i = 0; i < worker.count; ++i) {
      const int owner = (worker.index + i) % worker.count;
      claim(claims_[owner], num_items(owner), num_items(), batch_size(num_items(), worker),
            [&](int64_t item, int64_t) { attend(step, worker, owner, item); });
    }
    wait_for(num_items());
  }

  void reset() override {
    Op::reset();
    for (Claims& claims : claims_) claims.next.store(0, std::memory_order_relaxed);
  }

 private:
  int64_t num_items() const { return context_.part->pieces.num_pieces() * items_per_piece(); }
  int64_t num_items(int owner) const {
    return static_cast<int64_t>(context_.part->pieces.share(owner).size()) * items_per_piece();
  }

  void attend(const StepState& step, Worker& worker, int owner, int64_t item) const {
    const AttentionPiece& piece = context_.part->pieces.share(owner)[item / items_per_piece()];
    attend(step, worker, piece, static_cast<int32_t>(item % items_per_piece()));
  }

  void attend(const StepState& step, Worker& worker, const AttentionPiece& piece,
              int32_t kv_head) const {
    const ModelShape& shape = context_.shape;
    const int32_t group = shape.group();
    const int64_t dim = shape.padded_head_dim();
    const int64_t max_rows =
        int64_t{attention_tokens_per_item(group, static_cast<int32_t>(dim))} * group;
    float* out = worker.attention_scratch.as<float>();
    AttentionItem item;
    item.kv = kv_;
    item.block_table = step.input->block_tables + step.input->sequences[piece.sequence].first_block;
    item.kv_head = kv_head;
    item.first_position = piece.first_position;
    item.num_tokens = piece.num_tokens;
    item.group = group;
    item.window = window_;
    item.query =
        context_.queries + (int64_t{piece.first_row} * shape.num_heads + kv_head * group) * dim;
    item.query_stride = shape.num_heads * dim;
    item.out = out;
    item.out_stride = group * dim;
    item.scratch = worker.attention_scratch.data() + max_rows * dim * sizeof(float);
    context_.kernels->attention(item);
    for (int32_t t = 0; t < piece.num_tokens; ++t) {
      store_row(out + t * group * dim, piece.first_row + t, kv_head);
    }
  }

  // One token's [group][padded D] into the columns kv_head * group * D .. of its row.
  void store_row(float* heads, int64_t row, int32_t kv_head) const {
    const ModelShape& shape = context_.shape;
    const int64_t dim = shape.head_dim, padded = shape.padded_head_dim();
    const int64_t count = shape.group() * dim, first = kv_head * count;
    if (padded != dim) {
      for (int32_t g = 1; g < shape.group(); ++g) {
        std::memmove(heads + g * dim, heads + g * padded, dim * sizeof(float));
      }
    }
    if (count % kGroup == 0) {
      context_.kernels->store_acts(dst_->format(), heads, count / kGroup, dst_->buffer(),
                                   dst_->chunk(row, first), 1);
    } else {
      store_unaligned(heads, row, first, count);
    }
  }

  // Heads that do not fill 32-number chunks (the loader gives such models float activations).
  void store_unaligned(const float* values, int64_t row, int64_t first, int64_t count) const {
    const int64_t offset = row * dst_->k() + first;
    if (dst_->format() == ActFormat::kF32) {
      std::memcpy(dst_->buffer().f32 + offset, values, count * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      dst_->buffer().bf16[offset + i] = float_to_bf16(values[i]);
    }
  }

  const OpContext context_;
  const KvLayer kv_;
  const int32_t window_;
  Acts* const dst_;
  std::vector<Claims> claims_;  // [shares]
};

}  // namespace

int64_t OpContext::block_bytes_per_layer() const {
  return shape.num_kv_heads *
         kv_head_bytes(shape.kv_format, shape.padded_head_dim(), shape.block_size);
}

KvLayer OpContext::kv_layer(int32_t layer) const {
  KvLayer kv;
  kv.block_stride = block_bytes_per_layer();
  kv.head_stride = kv.block_stride / shape.num_kv_heads;
  kv.base = kv_pool + int64_t{layer} * shape.num_blocks * kv.block_stride;
  kv.block_size = shape.block_size;
  kv.head_dim = static_cast<int32_t>(shape.padded_head_dim());
  kv.format = shape.kv_format;
  return kv;
}

std::unique_ptr<Op> make_qkv(const OpContext& context, const QkvWeights& weights, const Acts* src,
                             int32_t layer, int32_t rope) {
  return std::make_unique<QkvOp>(context, weights, src, layer, rope);
}

std::unique_ptr<Attention> make_attention(const OpContext& context, int32_t layer, int32_t window,
                                          Acts* dst) {
  return std::make_unique<AttentionOp>(context, layer, window, dst);
}

}  // namespace octavo
