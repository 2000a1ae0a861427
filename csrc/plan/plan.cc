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
  for (int p = 0; p < kMaxParts; ++p) {
    parts_[p].context = context_;
    parts_[p].context.part = &step_.parts[p];
  }

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
void Plan::add(Make make) {
  for (PartOps& part : parts_) {
    part.segments.back().push_back(make(part.context));
    part.link(part.segments.back().back().get());
  }
}

template <class AddOp>
void Plan::add_writer(Role role, int reader, AddOp add_op) {
  Acts* acts = acts_for(role, reader);
  if (acts->format() != ActFormat::kRowQ8) return add_op(acts);
  Acts* floats = acts_of(role, reader, ActFormat::kF32);
  add_op(floats);
  add([&](const OpContext& c) { return make_quantize(c, floats, acts); });
}

void Plan::add_embed(int embedding, float multiplier) {
  add([&](const OpContext& c) {
    return make_embed(c, linears_.at(embedding), multiplier, ropes_);
  });
}

void Plan::add_norm(int post_weight, int weight, int reader) {
  Acts* dst = reader < 0 ? nullptr : acts_for(Role::kHidden, reader);
  add([&](const OpContext& c) {
    return make_norm(c, vector_or_null(post_weight), vector_or_null(weight), dst);
  });
}

void Plan::add_qkv(int linear, int bias, int query_norm, int key_norm, int layer, int rope) {
  const QkvWeights weights{&linear_of_layer(linear), vector_or_null(bias),
                           vector_or_null(query_norm), vector_or_null(key_norm)};
  const Acts* src = acts_for(Role::kHidden, linear);
  add([&](const OpContext& c) { return make_qkv(c, weights, src, layer, rope); });
}

void Plan::add_attention(int layer, int window, int reader) {
  add_writer(Role::kAttention, reader, [&](Acts* dst) {
    for (PartOps& part : parts_) {
      part.attentions.push_back(make_attention(part.context, layer, window, dst));
      part.link(part.attentions.back().get());
      part.segments.emplace_back();
    }
  });
}

void Plan::add_output(int linear, int bias, bool to_branch) {
  const Linear& weights = linear_of_layer(linear);
  const Acts* src = acts_for(Role::kAttention, linear);
  add([&](const OpContext& c) {
    return make_projection(c, "output", weights, vector_or_null(bias), src, to_branch);
  });
}

void Plan::add_gate_up(int linear, int bias, Activation activation, int reader) {
  const Linear& weights = linear_of_layer(linear);
  const Acts* src = acts_for(Role::kHidden, linear);
  add_writer(Role::kIntermediate, reader, [&](Acts* dst) {
    add([&](const OpContext& c) {
      return make_gate_up(c, weights, vector_or_null(bias), activation, src, dst);
    });
  });
}

void Plan::add_down(int linear, int bias, bool to_branch) {
  const Linear& weights = linear_of_layer(linear);
  const Acts* src = acts_for(Role::kIntermediate, linear);
  add([&](const OpContext& c) {
    return make_projection(c, "down", weights, vector_or_null(bias), src, to_branch);
  });
}

void Plan::set_head(int linear, int norm_weight) {
  hidden_ = make_hidden(context_, vectors_.at(norm_weight));
  head_ = make_head(context_, linears_.at(linear), vectors_.at(norm_weight), &workers_);
}

const Linear& Plan::linear_of_layer(int linear) {
  const Linear& found = linears_.at(linear);
  layers_bytes_ += found.num_bytes();
  return found;
}

LayerBytes Plan::layer_bytes() const {
  const int64_t kv = context_.block_bytes_per_layer() / context_.shape.block_size;
  return {layers_bytes_ / context_.shape.num_layers, kv};
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

// In one part: segment after segment, each with its attention. In two: while one part multiplies,
// the other attends.
void Plan::run_layers(Worker& worker) {
  const int num_parts = step_.parts.count();
  const size_t num_layers = parts_[0].attentions.size();
  Attention* last = nullptr;  // of the other part, where there are two
  for (size_t turn = 0; turn < (num_layers + 1) * num_parts; ++turn) {
    const PartOps& part = parts_[turn % num_parts];
    const size_t i = turn / num_parts;
    Attention* const next = i < num_layers ? part.attentions[i].get() : nullptr;
    Attention* const due = num_parts == 1 ? next : last;
    if (due != nullptr && due == next) worker.beside.fetch(*due, step_, worker);
    if (due != nullptr && due == last) worker.beside.attend(*due, step_, worker);
    for (const std::unique_ptr<Op>& op : part.segments[i]) run_op(*op, worker);
    worker.beside.stop();
    if (due != nullptr) run_op(*due, worker);
    last = next;
  }
}

void Plan::run_op(Op& op, Worker& worker) {
  const bool timed = profiling_ && worker.index == 0;
  const auto start =
      timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  worker.beside.set_clock(timed);
  op.run(step_, worker);
  if (timed) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const double attending = worker.beside.read_clock();
    profile_[op.name()] += taken.count() - attending;
    if (attending > 0.0) profile_["attention"] += attending;
  }
}

void Plan::run(const StepInput& input, StepOutput& output) {
  prepare(input, output);
  threads_.run([&](int t) {
    Worker& worker = workers_[t];
    run_layers(worker);
    run_op(*hidden_, worker);
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
  step_.parts.divide(
      input, pays_in_two(input, layer_bytes(), threads_.size()),
      attention_tokens_per_item(shape.group(), static_cast<int32_t>(shape.padded_head_dim())),
      threads_.size());
  for (int p = 0; p < step_.parts.count(); ++p) {
    for (const auto& segment : parts_[p].segments) {
      for (const std::unique_ptr<Op>& op : segment) op->reset();
    }
    for (const std::unique_ptr<Attention>& op : parts_[p].attentions) op->reset();
  }
  hidden_->reset();
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
