// What a plan is made of: ops that every thread runs together, claiming pieces of work.
#ifndef OCTAVO_PLAN_OP_H_
#define OCTAVO_PLAN_OP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernel_table.h"
#include "plan/linear.h"
#include "plan/memory.h"
#include "plan/sampler.h"
#include "plan/step.h"

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
  bool kv_bf16;

  static int64_t pad32(int64_t n) { return (n + 31) / 32 * 32; }
  int64_t padded_hidden() const { return pad32(hidden_size); }
  int64_t padded_head_dim() const { return (head_dim + 15) / 16 * 16; }
  int64_t attention_width() const { return pad32(int64_t{num_heads} * head_dim); }
  int64_t padded_intermediate() const { return pad32(intermediate_size); }
  int32_t group() const { return num_heads / num_kv_heads; }
};

// Rows of activations in one of the three forms; room for all is made at load.
class Acts {
 public:
  Acts(int64_t max_rows, int64_t k, ActFormat format);

  ActFormat format() const { return format_; }
  int64_t k() const { return k_; }
  // For KernelTable::store_acts: chunk offset of (row, column), column a multiple of 32.
  const ActBuffer& buffer() const { return buffer_; }
  int64_t chunk(int64_t row, int64_t column) const { return (row * k_ + column) / kGroup; }

 private:
  ActFormat format_;
  int64_t k_;
  Buffer memory_;
  ActBuffer buffer_;
};

// What a thread multiplies in one op: rows of activations, with their outliers in lists.
//
// Whoever writes activations sees 32 of them at a time and only marks an outlier; each reader
// collects the marks of the rows it works on, which is little beside multiplying them.
class GemmInput {
 public:
  struct Lists {
    std::vector<Outlier> outliers;
    std::vector<int32_t> first;
  };
  GemmInput(const Acts& acts, Lists* lists) : acts_(acts), lists_(*lists) {}

  // The view for rows [begin, end). Valid until the next call.
  const ActView& rows(int64_t begin, int64_t end);

 private:
  void collect(int64_t begin, int64_t end);

  const Acts& acts_;
  Lists& lists_;
  ActView view_;
  int64_t begin_ = -1;
};

constexpr int32_t kHeadRows = 64;   // rows of logits that are computed and used at a time
constexpr int64_t kRowChunk = 256;  // activation rows of one piece of work: they stay in cache

// One piece of attention: query tokens [first_row, first_row + num_tokens) of a sequence.
struct AttentionPiece {
  int32_t sequence;
  int32_t first_row;
  int32_t num_tokens;
  int32_t first_position;
};

// The present step and the memory that ops hand results through.
struct StepState {
  const StepInput* input = nullptr;
  StepOutput* output = nullptr;
  std::vector<int32_t> positions;      // [T]
  std::vector<int32_t> blocks;         // [T] block that holds the token
  std::vector<AttentionPiece> pieces;  // all of the step, longest context first
  std::vector<float> cos, sin;         // [ropes][T][D/2]
  int32_t first_head_row = 0;          // the slice of StepInput::rows that the head works on
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
  std::vector<BestToken> best;  // [kHeadRows] of the tiles that this thread has done
};

// A counter on its own cache line that hands out pieces of work.
struct alignas(64) Claims {
  std::atomic<int64_t> next{0};
};

class Op {
 public:
  explicit Op(const char* name) : name_(name) {}
  virtual ~Op() = default;

  // Every thread calls this once per step, between two barriers.
  virtual void run(StepState& step, Worker& worker) = 0;
  // Called by one thread before the step.
  void reset() { claims_.next.store(0, std::memory_order_relaxed); }
  const char* name() const { return name_; }

 protected:
  // Calls body(task, next task or -1) for tasks 0 .. num_tasks - 1, shared among the threads in
  // batches. The next batch is claimed before the present one is done, so that its weights can be
  // prefetched.
  template <class Body>
  void for_tasks(int64_t num_tasks, int64_t batch, Body body) {
    int64_t begin = claims_.next.fetch_add(batch, std::memory_order_relaxed);
    while (begin < num_tasks) {
      const int64_t after = claims_.next.fetch_add(batch, std::memory_order_relaxed);
      const int64_t end = begin + batch < num_tasks ? begin + batch : num_tasks;
      for (int64_t task = begin; task < end; ++task) {
        body(task, task + 1 < end ? task + 1 : after < num_tasks ? after : -1);
      }
      begin = after;
    }
  }
  // Batches small enough to balance, large enough that claiming costs nothing.
  static int64_t batch_size(int64_t num_tasks, const Worker& worker) {
    const int64_t batch = num_tasks / (8 * worker.count);
    return batch < 1 ? 1 : batch;
  }

 private:
  const char* name_;
  Claims claims_;
};

// Runs gemm over `rows` rows of a tile, four at a time: epilogue(first row, number of rows,
// out[rows][32]).
template <class Epilogue>
void for_row_blocks(const KernelTable& kernels, const ActView& acts, const Linear::Tile& tile,
                    int64_t tile_size, const uint8_t* next_tile, int64_t begin, int64_t end,
                    Epilogue epilogue) {
  alignas(64) float out[kMaxRows * kTileCols];
  const int64_t num_blocks = (end - begin + kMaxRows - 1) / kMaxRows;
  // The next tile arrives while this one is multiplied; the lines are spread over the row blocks.
  const int64_t lines =
      next_tile == nullptr ? 0 : (tile_size / kLine + num_blocks - 1) / num_blocks;
  const int64_t total_lines = tile_size / kLine;
  int64_t done = 0;
  for (int64_t row = begin; row < end; row += kMaxRows) {
    const int64_t rows = end - row < kMaxRows ? end - row : kMaxRows;
    const int64_t share = total_lines - done < lines ? total_lines - done : lines;
    const Prefetch prefetch =
        next_tile == nullptr ? Prefetch{} : Prefetch{next_tile + done * kLine, share};
    done += share;
    kernels.gemm[static_cast<int>(tile.format)][rows - 1](acts, row, tile.data, prefetch, out);
    epilogue(row, rows, out);
  }
}

}  // namespace octavo

#endif  // OCTAVO_PLAN_OP_H_
