// What a thread does beside multiplying: fetching keys and values, and attending to those that
// came.
#ifndef OCTAVO_PLAN_BESIDE_H_
#define OCTAVO_PLAN_BESIDE_H_

#include <cstdint>

#include "plan/kv_feed.h"

namespace octavo {

class Attention;
struct StepState;
struct Worker;

class Beside {
 public:
  // From now on, fetch what the thread's share of an attention reads.
  void fetch(const Attention& attention, const StepState& step, const Worker& worker);
  // The same, and attend to what has been fetched: of an attention whose queries, keys and values
  // are complete. Memory then works while matrices are multiplied, and what it brings is used at
  // once (docs/decisions/0053-two-parts.md).
  void attend(Attention& attention, const StepState& step, Worker& worker);
  void stop();

  // Lines to fetch during a GEMM call; see KvFeed::take.
  Prefetch take(int64_t num_lines) { return feed_.take(num_lines); }
  // Between two tiles.
  void after_tile() {
    if (attention_ != nullptr && num_attended_ < num_fetched()) attend_one();
  }

  // Seconds spent in attention since `read_clock` was last called; none while the clock is off.
  void set_clock(bool on) { clock_on_ = on; }
  double read_clock();

 private:
  int64_t num_fetched() const { return feed_.num_pieces_done() * items_per_piece_; }
  void attend_one();

  KvFeed feed_;
  Attention* attention_ = nullptr;
  const StepState* step_ = nullptr;
  Worker* worker_ = nullptr;
  int64_t items_per_piece_ = 0;
  int64_t num_attended_ = 0;
  bool clock_on_ = false;
  double seconds_ = 0.0;
};

}  // namespace octavo

#endif  // OCTAVO_PLAN_BESIDE_H_
