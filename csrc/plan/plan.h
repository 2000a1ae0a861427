// A model on this machine: packed weights, the block pool, and the list of ops that a step runs.
//
// Built once: linears and vectors are added and packed, then ops in order, then `run` for every
// step. Nothing about a step's shape is fixed; batch, lengths and tables are read from StepInput.
#ifndef OCTAVO_PLAN_PLAN_H_
#define OCTAVO_PLAN_PLAN_H_

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/kv_pool.h"
#include "plan/ops.h"
#include "plan/thread_pool.h"

namespace octavo {

class Plan {
 public:
  // Throws std::bad_alloc, std::invalid_argument.
  Plan(const ModelShape& shape, const KernelTable& kernels, int num_threads);

  // --- weights. Each returns the number by which ops name it.
  int add_linear(int64_t k, const std::vector<WeightFormat>& formats);
  void pack(int linear, QuantType type, const uint8_t* rows, int64_t num_rows,
            const TileLayout& layout);
  int64_t linear_k(int linear) const { return linears_.at(linear).k(); }
  int add_vector(std::vector<float> values);  // padded by the caller
  int add_rope(RopeTable rope);

  // --- ops, in the order of the step. Vectors and linears by number; -1: none. `reader` is the
  // linear that multiplies what the op writes: it decides the form of the activations.
  void add_embed(int embedding, float multiplier);
  void add_norm(int post_weight, int weight, int reader);
  void add_qkv(int linear, int bias, int query_norm, int key_norm, int layer, int rope);
  void add_attention(int layer, int window, int reader);
  void add_output(int linear, int bias, bool to_branch);
  void add_gate_up(int linear, int bias, Activation activation, int reader);
  void add_down(int linear, int bias, bool to_branch);
  void set_head(int linear, int norm_weight);

  void run(const StepInput& input, StepOutput& output);
  // For idle time: prepares memory for blocks to come, a few milliseconds' worth. False: there is
  // enough.
  bool grow_pool() { return pool_.grow_ahead(threads_); }

  // One block of the pool, all layers in one piece of page_bytes(), for other tiers of memory. Both
  // may be called while `run` computes on other blocks.
  int64_t page_bytes() const;
  void read_page(int32_t block, uint8_t* page) const;
  void write_page(int32_t block, const uint8_t* page);

  // Of the last step.
  int num_parts() const { return step_.parts.count(); }
  // Seconds that each op has taken (by name, barrier included) since profiling was last turned on.
  void set_profiling(bool on);
  const std::map<std::string, double>& profile() const { return profile_; }

  const ModelShape& shape() const { return context_.shape; }
  size_t weight_bytes() const;
  size_t pool_bytes() const { return pool_.size(); }
  // Everything else: activations of the largest step, logits, and what each thread works with.
  size_t scratch_bytes() const;
  ThreadPool& threads() { return threads_; }

 private:
  // Buffers of one role and form are shared by all layers: a barrier lies between any two uses.
  enum class Role { kHidden, kAttention, kIntermediate };
  Acts* acts_for(Role role, int reader) {
    return acts_of(role, reader, linears_.at(reader).acts());
  }
  Acts* acts_of(Role role, int reader, ActFormat format);
  // Adds an op of the layers, made by make(context), for each part of a step.
  template <class Make>
  void add(Make make);
  // The same of one that writes activations piece by piece, which add_op(acts) adds; what is
  // quantized by whole rows passes through floats.
  template <class AddOp>
  void add_writer(Role role, int reader, AddOp add_op);
  const FloatVector* vector_or_null(int number) const;
  const Linear& linear_of_layer(int linear);
  LayerBytes layer_bytes() const;
  void run_layers(Worker& worker);
  void run_op(Op& op, Worker& worker);
  void start_head(int32_t first_row);
  void copy_blocks(const StepInput& input);
  void prepare(const StepInput& input, StepOutput& output);

  OpContext context_;
  ThreadPool threads_;
  KvPool pool_;
  Buffer rows_memory_;
  Arena weight_memory_;
  std::deque<Linear> linears_;  // deques: ops keep pointers to what is in them
  std::deque<FloatVector> vectors_;
  std::map<std::pair<Role, ActFormat>, Acts> acts_;
  std::vector<RopeTable> ropes_;
  // The ops of the layers, as one part of a step runs them: an attention lies between each two
  // segments.
  struct PartOps {
    OpContext context;
    std::vector<std::vector<std::unique_ptr<Op>>> segments{1};
    std::vector<std::unique_ptr<Attention>> attentions;
    Op* last = nullptr;

    void link(Op* op) {
      if (last != nullptr) last->set_following(op);
      last = op;
    }
  };
  std::array<PartOps, kMaxParts> parts_;
  int64_t layers_bytes_ = 0;  // of their linears
  std::unique_ptr<Op> hidden_;
  Head head_;
  std::vector<Worker> workers_;
  StepState step_;
  bool profiling_ = false;
  std::map<std::string, double> profile_;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_PLAN_H_
