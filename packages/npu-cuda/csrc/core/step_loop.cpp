#include "core/step_loop.h"

#include <cstring>

namespace npu {

int StepLoop::reserve() {
  std::unique_lock lock(mutex_);
  const auto count = int64_t(slots_.size());
  if (num_full() == count && !is_closed_) {
    is_filler_waiting_ = true;
    // To wake a thread takes as long as a small step: once for half of the slots.
    is_free_.wait(lock, [&] { return num_full() <= count / 2 || is_closed_; });
    is_filler_waiting_ = false;
  }
  return is_closed_ ? kClosed : int(num_pushed_ % count);
}

void StepLoop::push() {
  const std::lock_guard lock(mutex_);
  if (num_pushed_++ == num_taken_) is_full_.notify_one();
}

void StepLoop::end() {
  const std::lock_guard lock(mutex_);
  is_ended_ = true;
  is_full_.notify_one();
}

void StepLoop::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  is_free_.notify_one();
}

int64_t StepLoop::steps_taken() const {
  const std::lock_guard lock(mutex_);
  return num_taken_;
}

bool StepLoop::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_ended_ && num_full() == 0;
}

Status StepLoop::run(const std::vector<char*>& rows, int64_t limit, std::chrono::duration<double> time) {
  const Time deadline = std::chrono::steady_clock::now() + std::chrono::duration_cast<Time::duration>(time);
  for (int64_t step = 0; step < limit && wait_for_slot(deadline); ++step) {
    NPU_TRY(take_step(slots_[size_t(num_taken_) % slots_.size()]));
    for (size_t i = 0; i < results_.size(); ++i) {
      std::memcpy(rows[i] + size_t(step) * results_[i].bytes, results_[i].data, results_[i].bytes);
    }
    pop();
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  return {};
}

bool StepLoop::wait_for_slot(Time deadline) {
  std::unique_lock lock(mutex_);
  is_full_.wait_until(lock, deadline, [&] { return num_full() > 0 || is_ended_ || is_closed_; });
  return num_full() > 0 && !is_closed_;
}

Status StepLoop::take_step(const std::vector<MemoryBlock>& slot) {
  for (size_t i = 0; i < inputs_.size(); ++i) std::memcpy(inputs_[i].data, slot[i].data, inputs_[i].bytes);
  for (Program* program : programs_) NPU_TRY(program->run(program->device()->default_stream()));
  return {};
}

void StepLoop::pop() {
  const std::lock_guard lock(mutex_);
  ++num_taken_;
  if (is_filler_waiting_ && num_full() <= int64_t(slots_.size()) / 2) is_free_.notify_one();
}

}  // namespace npu
