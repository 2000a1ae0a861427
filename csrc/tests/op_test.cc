// How the threads of a step share out the tasks of an op.
#include "plan/op.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace octavo::test {
namespace {

// Counts how often each task is done, and notes which task each thread begins with.
class CountingOp final : public Op {
 public:
  CountingOp(int64_t tasks, int64_t batch, int threads, int late)
      : Op("counting"), done_(tasks), first_(threads, -1), batch_(batch), late_(late) {}

  void run(StepState&, Worker& worker) override {
    if (worker.index == late_) wait_for_all();
    int64_t expected = -1;
    for_tasks_from_own(worker, static_cast<int64_t>(done_.size()), batch_,
                       [&](int64_t task, int64_t next) {
                         if (first_[worker.index] < 0) first_[worker.index] = task;
                         if (expected >= 0 && expected != task) ++surprises_;
                         expected = next;
                         ++done_[task];
                       });
  }

  std::vector<std::atomic<int>> done_;
  std::vector<int64_t> first_;
  std::atomic<int> surprises_{0};
  int target_ = 0;  // how often each task is to have been done after this run

 private:
  void wait_for_all() const {
    for (const std::atomic<int>& task : done_) {
      while (task < target_) std::this_thread::yield();
    }
  }

  const int64_t batch_;
  const int late_;
};

}  // namespace

TEST(every_task_is_done_once_whoever_comes_late) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<Worker> workers(threads);
    for (int t = 0; t < threads; ++t) workers[t].index = t, workers[t].count = threads;
    for (int64_t tasks : {0, 1, 2, 5, 64, 1000}) {
      for (int64_t batch : {1, 3}) {
        for (int late : {-1, threads > 1 ? 0 : -1, threads > 1 ? threads - 1 : -1}) {
          CountingOp op(tasks, batch, threads, late);
          StepState step;
          for (int repeat = 0; repeat < 2; ++repeat) {
            op.reset();
            op.target_ = repeat + 1;
            std::fill(op.first_.begin(), op.first_.end(), -1);
            pool.run([&](int t) { op.run(step, workers[t]); });
            for (int64_t i = 0; i < tasks; ++i) {
              CHECK(op.done_[i] == repeat + 1, "task %ld of %ld: %d times", static_cast<long>(i),
                    static_cast<long>(tasks), op.done_[i].load());
            }
            CHECK(op.surprises_ == 0, "another task followed than was announced");
          }
          // Others did what the late one would have begun with.
          if (late >= 0) CHECK(op.first_[late] < 0, "%ld", static_cast<long>(op.first_[late]));
          if (threads == 1 && tasks > 0) {
            CHECK(op.first_[0] == 0, "%ld", static_cast<long>(op.first_[0]));
          }
        }
      }
    }
  }
}

}  // namespace octavo::test
