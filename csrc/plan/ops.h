// The ops of a decoder, in the order of a step: embed; per layer norm, qkv, attention, output
// projection, norm, gate-up, down projection; then, for slices of the rows that need logits: norm,
// head, finish.
#ifndef OCTAVO_PLAN_OPS_H_
#define OCTAVO_PLAN_OPS_H_

#include <memory>
#include <vector>

#include "plan/op.h"

namespace octavo {

// What all ops of a plan see.
struct OpContext {
  const KernelTable* kernels;
  ModelShape shape;
  int num_threads = 1;
  uint8_t* kv_pool = nullptr;  // [layer][block][KV head][keys | values]
  float* x = nullptr;          // residual stream [T][padded hidden]
  float* branch = nullptr;  // output of attention or feed-forward, where it is normed before adding
  float* queries = nullptr;        // [T][H][padded D], scaled
  const StepPart* part = nullptr;  // the rows that an op of the layers works on

  KvLayer kv_layer(int32_t layer) const;
  int64_t block_bytes_per_layer() const;
};

// A vector of weights, padded with zeros.
using FloatVector = std::vector<float>;

struct RopeTable {
  std::vector<double> inv_freq;  // [D/2]
  double attention_factor;
};

std::unique_ptr<Op> make_embed(const OpContext& context, const Linear& embedding, float multiplier,
                               const std::vector<RopeTable>& ropes);

// x += norm(branch, post_weight) if given; dst = norm(x, weight). dst may be nullptr after the last
// layer.
std::unique_ptr<Op> make_norm(const OpContext& context, const FloatVector* post_weight,
                              const FloatVector* weight, Acts* dst);

struct QkvWeights {
  const Linear* linear;           // heads q, then k, then v, each padded to whole tiles
  const FloatVector* bias;        // [(H + 2K) * padded D] or nullptr
  const FloatVector* query_norm;  // [D] or nullptr
  const FloatVector* key_norm;
};
std::unique_ptr<Op> make_qkv(const OpContext& context, const QkvWeights& weights, const Acts* src,
                             int32_t layer, int32_t rope);

class Attention : public Op {
 public:
  using Op::Op;
  // An item is the attention of one KV head to a piece. Each belongs to the share of one thread.
  virtual int64_t items_per_piece() const = 0;
  // Attends to the next item of the thread's own share, ahead of `run`; false: there is none left.
  virtual bool attend_one(const StepState& step, Worker& worker) = 0;
  // Lets the feed begin with what that share reads.
  virtual void start_feed(const StepState& step, const Worker& worker, KvFeed* feed) const = 0;
};
std::unique_ptr<Attention> make_attention(const OpContext& context, int32_t layer, int32_t window,
                                          Acts* dst);

// dst = src, float32 rows as int8 with one scale each.
std::unique_ptr<Op> make_quantize(const OpContext& context, const Acts* src, Acts* dst);

// x += src * linear + bias, or, for a layer that norms it first, branch = src * linear + bias.
std::unique_ptr<Op> make_projection(const OpContext& context, const char* name,
                                    const Linear& linear, const FloatVector* bias, const Acts* src,
                                    bool to_branch);

// dst = act(gate) * up; tiles of `linear` alternate gate and up, and so do the 32-number pieces of
// bias.
std::unique_ptr<Op> make_gate_up(const OpContext& context, const Linear& linear,
                                 const FloatVector* bias, Activation activation, const Acts* src,
                                 Acts* dst);

// The hidden states that the caller wants, normed.
std::unique_ptr<Op> make_hidden(const OpContext& context, const FloatVector& norm_weight);

// The three ops of the head; they work on the step's present slice of rows.
struct Head {
  std::unique_ptr<Op> norm, logits, finish;
  size_t num_bytes = 0;  // of the memory that they share
};
Head make_head(const OpContext& context, const Linear& linear, const FloatVector& norm_weight,
               std::vector<Worker>* workers);

}  // namespace octavo

#endif  // OCTAVO_PLAN_OPS_H_
