// RowLoop: runs programs in order, again and again, over memory that they share: what one step computes, the next one
// reads. Before a step, its row of what is given is copied into inputs; after it, results are copied into its row of what
// is kept. It is used by one thread at a time.
#pragma once

#include <chrono>
#include <optional>

#include "core/program.h"

namespace npu {

// Fixed memory, and rows of as many bytes, one for each step.
struct StepRows {
  char* fixed;
  size_t bytes;
  char* rows;
};

// Says when there are enough steps: once each number of the first result has been one of these in some step.
struct StopNumbers {
  std::vector<int64_t> numbers;
  bool* have_ended;  // of each number of the first result; true ones may be there before
  size_t count;
};

class RowLoop {
 public:
  // Programs that are final and bound, on the host. `given` and `kept` have `count` rows.
  RowLoop(std::vector<Program*> programs, std::vector<StepRows> given, std::vector<StepRows> kept, int64_t count,
          std::optional<StopNumbers> stop)
      : programs_(std::move(programs)), given_(std::move(given)), kept_(std::move(kept)), count_(count), stop_(std::move(stop)) {}
  RowLoop(const RowLoop&) = delete;
  RowLoop& operator=(const RowLoop&) = delete;

  // Takes steps until `limit` are taken, or none is left, or this much time is over. A step that fails is not counted.
  Status run(int64_t limit, std::chrono::duration<double> time);

  int64_t steps_taken() const { return taken_; }
  // Whether no step is left: all rows are used, or all numbers have ended.
  bool is_over() const { return taken_ == count_ || have_all_ended_; }
  // The number of the program that failed, after a run that did; kNone otherwise.
  int failed_program() const { return running_; }
  static constexpr int kNone = -1;

 private:
  Status take_step();
  bool have_all_ended() const;

  const std::vector<Program*> programs_;
  const std::vector<StepRows> given_, kept_;
  const int64_t count_;
  const std::optional<StopNumbers> stop_;
  int64_t taken_ = 0;
  int running_ = kNone;  // a program, by number
  bool have_all_ended_ = false;
};

}  // namespace npu
