#include "plan/beside.h"

#include <chrono>
#include <utility>

#include "plan/ops.h"

namespace octavo {

void Beside::fetch(const Attention& attention, const StepState& step, const Worker& worker) {
  attention.start_feed(step, worker, &feed_);
}

void Beside::attend(Attention& attention, const StepState& step, Worker& worker) {
  fetch(attention, step, worker);
  attention_ = &attention;
  step_ = &step;
  worker_ = &worker;
  items_per_piece_ = attention.items_per_piece();
  num_attended_ = 0;
}

void Beside::stop() {
  feed_.stop();
  attention_ = nullptr;
}

void Beside::attend_one() {
  const auto start =
      clock_on_ ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  ++num_attended_;
  if (!attention_->attend_one(*step_, *worker_)) attention_ = nullptr;
  if (clock_on_) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds_ += taken.count();
  }
}

double Beside::read_clock() { return std::exchange(seconds_, 0.0); }

}  // namespace octavo
