// What a plan is made of: ops that every thread runs together, claiming pieces of work.
#ifndef OCTAVO_PLAN_OP_H_
#define OCTAVO_PLAN_OP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernel_table.h"
#include "plan/acts.h"
#include "plan/beside.h"
#include "plan/gemm_input.h"
#include "plan/linear.h"
#include "plan/memory.h"
#include "plan/sampler.h"
#include "plan/step.h"
#include "plan/step_parts.h"
#include "plan/thread_pool.h"

namespace octavo {

// The numbers of a model that the ops share. Padded sizes are multiples of 32 (rows) or 16 (heads).
struct ModelShape {
  int32_t hidden_size;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t intermediate_size;
  int32_t vocab_size;
  int32_t num_layers;
  float norm_eps;
  float attention_scale;
  int32_t max_tokens;  // T at most
  int32_t num_blocks;
  int32_t block_size;
  KvFormat kv_format;

  static int64_t pad32(int64_t n) { return (n + 31) / 32 * 32; }
  int64_t padded_hidden() const { return pad32(hidden_size); }
  int64_t padded_head_dim() const { return (head_dim + 15) / 16 * 16; }
  int64_t attention_width() const { return pad32(int64_t{num_heads} * head_dim); }
  int64_t padded_intermediate() const { return pad32(intermediate_size); }
  int32_t group() const { return num_heads / num_kv_heads; }
};

constexpr int32_t kHeadRows = 64;  // rows of logits that are computed and used at a time

// The present step and the memory that ops hand results through.
struct StepState {
  const StepInput* input = nullptr;
  StepOutput* output = nullptr;
  std::vector<int32_t> positions;  // [T]
  std::vector<int32_t> blocks;     // [T] block that holds the token
  StepParts parts;
  std::vector<float> cos, sin;  // [ropes][T][D/2]
  int32_t first_head_row = 0;   // the slice of StepInput::rows that the head works on
  int32_t num_head_rows = 0;
};

// What belongs to one thread.
struct Worker {
  int index;
  int count;
  Buffer attention_scratch;  // for KernelTable::attention, then the item's output rows
  Buffer rows;               // kMaxRows rows of one head: queries, or keys and values
  std::unique_ptr<Sampler> sampler;
  GemmInput::Lists outliers;
  Beside beside;
  std::vector<BestToken> best;  // [kHeadRows] of the tiles that this thread has done
};

// Pieces of work handed out, on a cache line of its own.
struct Claims {
  alignas(64) std::atomic<int64_t> next{0};
};

class Op {
 public:
  explicit Op(const char* name) : name_(name) {}
  virtual ~Op() = default;

  // Every thread calls this once per step, op after op. It returns when all of the op is done, by
  // whichever threads; one that comes late finds nothing left to do and goes on. So no step waits
  // for a thread that the system has taken away, unless it holds a piece of work.
  virtual void run(StepState& step, Worker& worker) = 0;
  // Called by one thread while no other is in the op.
  virtual void reset() {
    claims_.next.store(0, std::memory_order_relaxed);
    own_taken_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
  }
  const char* name() const { return name_; }

  // The op that comes after this one in its part of a step.
  void set_following(const Op* op) { following_ = op; }
  // The weights that a thread will probably need first: who is done with one op's fetches the
  // next's.
  virtual Prefetch first_weights(const Worker& worker) const { return following_weights(worker); }

 protected:
  // What a thread that has no more tasks of this op may fetch.
  Prefetch following_weights(const Worker& worker) const {
    return following_ == nullptr ? Prefetch{} : following_->first_weights(worker);
  }

  // Calls body(task, next task or -1) for tasks 0 .. num_tasks - 1, shared among the threads in
  // batches, and waits for all. The next batch is claimed before the present one is done, so that
  // its weights can be prefetched.
  template <class Body>
  void for_tasks(int64_t num_tasks, int64_t batch, Body body) {
    claim(claims_, num_tasks, num_tasks, batch, body);
    wait_for(num_tasks);
  }
  // The same, but a thread begins with the batch that has its number, unless another has taken it:
  // what it needs first is known before. Not in rising order, then.
  template <class Body>
  void for_tasks_from_own(const Worker& worker, int64_t num_tasks, int64_t batch, Body body) {
    const int64_t num_batches = (num_tasks + batch - 1) / batch;
    const int64_t num_own = num_own_batches(worker, num_batches);
    int64_t present = worker.index < num_own && take_own(worker.index)
                          ? worker.index
                          : next_batch(num_own, num_batches);
    while (present >= 0) {
      const int64_t after = next_batch(num_own, num_batches);
      const int64_t begin = present * batch;
      const int64_t end = begin + batch < num_tasks ? begin + batch : num_tasks;
      for (int64_t task = begin; task < end; ++task) {
        body(task, task + 1 < end ? task + 1 : after < 0 ? -1 : after * batch);
      }
      count_done(end - begin, num_tasks);
      present = after;
    }
    wait_for(num_tasks);
  }
  // The same for the first `num_tasks` of `all_tasks`, which are handed out by `claims`; no wait.
  template <class Body>
  void claim(Claims& claims, int64_t num_tasks, int64_t all_tasks, int64_t batch, Body body) {
    int64_t begin = claims.next.fetch_add(batch, std::memory_order_relaxed);
    while (begin < num_tasks) {
      const int64_t after = claims.next.fetch_add(batch, std::memory_order_relaxed);
      const int64_t end = begin + batch < num_tasks ? begin + batch : num_tasks;
      for (int64_t task = begin; task < end; ++task) {
        body(task, task + 1 < end ? task + 1 : after < num_tasks ? after : -1);
      }
      count_done(end - begin, all_tasks);
      begin = after;
    }
  }
  // Claims and does one of them: body(task). False: none is left.
  template <class Body>
  bool claim_one(Claims& claims, int64_t num_tasks, int64_t all_tasks, Body body) {
    const int64_t task = claims.next.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks) return false;
    body(task);
    count_done(1, all_tasks);
    return true;
  }
  void wait_for(int64_t all_tasks) {
    wait_until(done_, [all_tasks](uint32_t done) { return done == all_tasks; });
  }
  // Batches small enough to balance, large enough that claiming costs nothing.
  static int64_t batch_size(int64_t num_tasks, const Worker& worker) {
    const int64_t batch = num_tasks / (8 * worker.count);
    return batch < 1 ? 1 : batch;
  }

 private:
  static constexpr int64_t kMostOwn = 64;
  static int64_t num_own_batches(const Worker& worker, int64_t num_batches) {
    return std::min<int64_t>({worker.count, num_batches, kMostOwn});
  }
  bool take_own(int64_t i) {
    const uint64_t bit = uint64_t{1} << i;
    return (own_taken_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
  // Of those that are nobody's own, then of those whose owner has not come. -1: none is left.
  int64_t next_batch(int64_t num_own, int64_t num_batches) {
    const int64_t batch = num_own + claims_.next.fetch_add(1, std::memory_order_relaxed);
    if (batch < num_batches) return batch;
    for (int64_t i = 0; i < num_own; ++i) {
      if (take_own(i)) return i;
    }
    return -1;
  }
  void count_done(int64_t tasks, int64_t all_tasks) {
    const uint32_t count = static_cast<uint32_t>(tasks);
    const uint32_t before = done_.fetch_add(count, std::memory_order_acq_rel);
    if (before + count == all_tasks) wake_all(done_);
  }

  const char* name_;
  const Op* following_ = nullptr;
  Claims claims_;
  std::atomic<uint64_t> own_taken_{0};  // bits of the batches that threads begin with
  alignas(64) std::atomic<uint32_t> done_{0};
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_OP_H_
