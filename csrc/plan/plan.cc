#include "plan/plan.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>

namespace octavo {
Plan::Plan(const ModelShape& shape, const KernelTable& kernels, int num_threads)
    : threads_(num_threads) {
  if (shape.num_heads % shape.num_kv_heads != 0) {
    throw std::invalid_argument("query heads must be a multiple of KV heads");
  }
  if (shape.head_dim > kMaxHeadDim) throw std::invalid_argument("heads of more than 512 numbers");
  context_.kernels = &kernels;
  context_.shape = shape;
  context_.num_threads = num_threads;
  pool_ = KvPool(shape.num_layers, shape.num_blocks, context_.block_bytes_per_layer());
  context_.kv_pool = pool_.data();

  const int64_t hidden = shape.max_tokens * shape.padded_hidden();
  const int64_t queries = int64_t{shape.max_tokens} * shape.num_heads * shape.padded_head_dim();
  rows_memory_ = Buffer((2 * hidden + queries) * sizeof(float));
  context_.x = rows_memory_.as<float>();
  context_.branch = context_.x + hidden;
  context_.queries = context_.branch + hidden;

  step_.positions.resize(shape.max_tokens);
  step_.blocks.resize(shape.max_tokens);

  const int64_t dim = shape.padded_head_dim();
  const int64_t max_rows =
      int64_t{attention_tokens_per_item(shape.group(), static_cast<int32_t>(dim))} * shape.group();
  const int64_t head_width = (shape.head_dim + kTileCols - 1) / kTileCols * kTileCols;
  workers_.resize(num_threads);
  for (int t = 0; t < num_threads; ++t) {
    Worker& w = workers_[t];
    w.index = t;
    w.count = num_threads;
    w.attention_scratch =
        Buffer(max_rows * dim * sizeof(float) + attention_scratch_bytes(max_rows, dim));
    w.rows = Buffer(2 * kRowChunk * head_width * sizeof(float));
    w.sampler = std::make_unique<Sampler>(kernels, shape.vocab_size);
  }
}

int Plan::add_linear(int64_t k, const std::vector<WeightFormat>& formats) {
  linears_.emplace_back(k, formats, &weight_memory_);
  return static_cast<int>(linears_.size()) - 1;
}

void Plan::pack(int linear, QuantType type, const uint8_t* rows, int64_t num_rows,
                const TileLayout& layout) {
  linears_.at(linear).pack(type, rows, num_rows, layout, threads_);
}

int Plan::add_vector(std::vector<float> values) {
  vectors_.push_back(std::move(values));
  return static_cast<int>(vectors_.size()) - 1;
}

int Plan::add_rope(RopeTable rope) {
  ropes_.push_back(std::move(rope));
  const size_t half = context_.shape.head_dim / 2;
  step_.cos.resize(ropes_.size() * context_.shape.max_tokens * half);
  step_.sin.resize(step_.cos.size());
  return static_cast<int>(ropes_.size()) - 1;
}

const FloatVector* Plan::vector_or_null(int number) const {
  return number < 0 ? nullptr : &vectors_.at(number);
}

Acts* Plan::acts_of(Role role, int reader, ActFormat format) {
  const auto key = std::make_pair(role, format);
  auto it = acts_.find(key);
  if (it == acts_.end()) {
    const int64_t k = linears_.at(reader).padded_k();
    it = acts_
             .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                      std::forward_as_tuple(
                          context_.shape.max_tokens, k, format,
                          role == Role::kHidden ? kHiddenOutlierShare : kInnerOutlierShare))
             .first;
  }
  return &it->second;
}

template <class Make>
void Plan::add_writer(Role role, int reader, Make make) {
  Acts* acts = acts_for(role, reader);
  if (acts->format() != ActFormat::kRowQ8) {
    ops_.push_back(make(acts));
    return;
  }
  Acts* floats = acts_of(role, reader, ActFormat::kF32);
  ops_.push_back(make(floats));
  ops_.push_back(make_quantize(context_, floats, acts));
}

void Plan::add_embed(int embedding, float multiplier) {
  ops_.push_back(make_embed(context_, linears_.at(embedding), multiplier, ropes_));
}

void Plan::add_norm(int post_weight, int weight, int reader) {
  Acts* dst = reader < 0 ? nullptr : acts_for(Role::kHidden, reader);
  ops_.push_back(make_norm(context_, vector_or_null(post_weight), vector_or_null(weight), dst));
}

void Plan::add_qkv(int linear, int bias, int query_norm, int key_norm, int layer, int rope) {
  const QkvWeights weights{&linears_.at(linear), vector_or_null(bias), vector_or_null(query_norm),
                           vector_or_null(key_norm)};
  ops_.push_back(make_qkv(context_, weights, acts_for(Role::kHidden, linear), layer, rope));
}

void Plan::add_attention(int layer, int window, int reader) {
  add_writer(Role::kAttention, reader,
             [&](Acts* dst) { return make_attention(context_, layer, window, dst); });
}

void Plan::add_output(int linear, int bias, bool to_branch) {
  ops_.push_back(make_projection(context_, "output", linears_.at(linear), vector_or_null(bias),
                                 acts_for(Role::kAttention, linear), to_branch));
}

void Plan::add_gate_up(int linear, int bias, Activation activation, int reader) {
  add_writer(Role::kIntermediate, reader, [&](Acts* dst) {
    return make_gate_up(context_, linears_.at(linear), vector_or_null(bias), activation,
                        acts_for(Role::kHidden, linear), dst);
  });
}

void Plan::add_down(int linear, int bias, bool to_branch) {
  ops_.push_back(make_projection(context_, "down", linears_.at(linear), vector_or_null(bias),
                                 acts_for(Role::kIntermediate, linear), to_branch));
}

void Plan::set_head(int linear, int norm_weight) {
  head_ = make_head(context_, linears_.at(linear), vectors_.at(norm_weight), &workers_);
}

size_t Plan::weight_bytes() const {
  size_t bytes = weight_memory_.num_bytes();
  for (const FloatVector& v : vectors_) bytes += v.size() * sizeof(float);
  return bytes;
}

size_t Plan::scratch_bytes() const {
  size_t bytes = rows_memory_.size() + head_.num_bytes;
  for (const auto& [key, acts] : acts_) bytes += acts.num_bytes();
  for (const Worker& w : workers_) {
    bytes += w.attention_scratch.size() + w.rows.size() + w.sampler->num_bytes();
  }
  return bytes + (step_.cos.size() + step_.sin.size()) * sizeof(float);
}

void Plan::set_profiling(bool on) {
  profiling_ = on;
  profile_.clear();
}

void Plan::run_op(Op& op, Worker& worker) {
  const bool timed = profiling_ && worker.index == 0;
  const auto start =
      timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  op.run(step_, worker);
  if (timed) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    profile_[op.name()] += taken.count();
  }
}

void Plan::run(const StepInput& input, StepOutput& output) {
  prepare(input, output);
  threads_.run([&](int t) {
    Worker& worker = workers_[t];
    for (const std::unique_ptr<Op>& op : ops_) run_op(*op, worker);
    for (int32_t first = 0; first < input.num_rows; first += kHeadRows) {
      if (first > 0) {  // the ops of the head are used again: all must have left them
        threads_.barrier(t);
        if (t == 0) start_head(first);
        threads_.barrier(t);
      }
      for (Op* op : {head_.norm.get(), head_.logits.get(), head_.finish.get()}) {
        run_op(*op, worker);
      }
    }
  });
}

void Plan::start_head(int32_t first_row) {
  step_.first_head_row = first_row;
  step_.num_head_rows = std::min(kHeadRows, step_.input->num_rows - first_row);
  for (Op* op : {head_.norm.get(), head_.logits.get(), head_.finish.get()}) op->reset();
  const BestToken none{-std::numeric_limits<float>::infinity(), 0, true};
  for (Worker& w : workers_) w.best.assign(kHeadRows, none);
}

void Plan::prepare(const StepInput& input, StepOutput& output) {
  step_.input = &input;
  step_.output = &output;
  int32_t last_block = -1;  // of those written to
  for (int32_t s = 0; s < input.num_sequences; ++s) {
    const SequenceStep& seq = input.sequences[s];
    for (int32_t i = 0; i < seq.num_tokens; ++i) {
      const int32_t position = seq.first_position + i;
      const int32_t block =
          input.block_tables[seq.first_block + position / context_.shape.block_size];
      step_.positions[seq.first_row + i] = position;
      step_.blocks[seq.first_row + i] = block;
      last_block = std::max(last_block, block);
    }
  }
  for (int32_t c = 0; c < input.num_copies; ++c) {
    last_block = std::max(last_block, input.copies[2 * c + 1]);
  }
  pool_.use(int64_t{last_block} + 1, threads_);
  copy_blocks(input);
  const ModelShape& shape = context_.shape;
  step_.pieces.split(
      input,
      attention_tokens_per_item(shape.group(), static_cast<int32_t>(shape.padded_head_dim())),
      threads_.size());
  for (const std::unique_ptr<Op>& op : ops_) op->reset();
  if (input.num_rows > 0) start_head(0);
}

void Plan::copy_blocks(const StepInput& input) {
  const int64_t bytes = context_.block_bytes_per_layer();
  for (int32_t layer = 0; layer < context_.shape.num_layers; ++layer) {
    const KvLayer kv = context_.kv_layer(layer);
    for (int32_t c = 0; c < input.num_copies; ++c) {
      std::memcpy(kv.base + input.copies[2 * c + 1] * kv.block_stride,
                  kv.base + input.copies[2 * c] * kv.block_stride, bytes);
    }
  }
}

int64_t Plan::page_bytes() const {
  return context_.block_bytes_per_layer() * context_.shape.num_layers;
}

void Plan::read_page(int32_t block, uint8_t* page) const {
  const int64_t bytes = context_.block_bytes_per_layer();
  for (int32_t layer = 0; layer < context_.shape.num_layers; ++layer) {
    const KvLayer kv = context_.kv_layer(layer);
    std::memcpy(page + layer * bytes, kv.base + block * kv.block_stride, bytes);
  }
}

void Plan::write_page(int32_t block, const uint8_t* page) {
  const int64_t bytes = context_.block_bytes_per_layer();
  for (int32_t layer = 0; layer < context_.shape.num_layers; ++layer) {
    const KvLayer kv = context_.kv_layer(layer);
    std::memcpy(kv.base + block * kv.block_stride, page + layer * bytes, bytes);
  }
}

}  // namespace octavo
