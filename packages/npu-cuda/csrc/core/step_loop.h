// StepLoop: runs programs in order, again and again, each time on the next of a few slots that another thread fills.
// The inputs of the programs have memory of their own, into which a slot is copied; what they compute is copied to the
// next row of the results. One thread fills slots, one takes steps: they wait for each other, and for nobody else.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/program.h"

namespace npu {

struct MemoryBlock {
  char* data;
  size_t bytes;
};

class StepLoop {
 public:
  static constexpr int kClosed = -1;

  // Programs that are final and bound, on the host. Each slot has a range for each input, of as many bytes.
  StepLoop(std::vector<Program*> programs, std::vector<MemoryBlock> inputs, std::vector<std::vector<MemoryBlock>> slots,
           std::vector<MemoryBlock> results)
      : programs_(std::move(programs)),
        inputs_(std::move(inputs)),
        slots_(std::move(slots)),
        results_(std::move(results)) {}
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // The thread that fills: the slot to be filled next, once it is free; kClosed after close().
  int reserve();
  // The slot that was reserved is full.
  void push();
  // There will be no more.
  void end();

  // The thread that takes steps: one on each full slot, until there will be no more, or `limit` steps are taken, or this
  // much time is over. A step that fails leaves its slot full. `rows`: memory for `limit` times each result.
  Status run(const std::vector<char*>& rows, int64_t limit, std::chrono::duration<double> time);
  // No step is taken any more.
  void close();

  int64_t steps_taken() const;
  // Whether end() was called, and all slots are empty.
  bool is_over() const;
  const std::vector<MemoryBlock>& results() const { return results_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  bool wait_for_slot(Time deadline);
  Status take_step(const std::vector<MemoryBlock>& slot);
  void pop();
  int64_t num_full() const { return num_pushed_ - num_taken_; }

  const std::vector<Program*> programs_;
  const std::vector<MemoryBlock> inputs_;
  const std::vector<std::vector<MemoryBlock>> slots_;
  const std::vector<MemoryBlock> results_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable is_free_, is_full_;
  int64_t num_pushed_ = 0;
  int64_t num_taken_ = 0;
  bool is_filler_waiting_ = false;
  bool is_ended_ = false;
  bool is_closed_ = false;
};

}  // namespace npu
