#include "core/row_loop.h"

#include <algorithm>
#include <cstring>

namespace npu {

Status RowLoop::run(int64_t limit, std::chrono::duration<double> time) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  for (int64_t step = 0; step < limit && !is_over(); ++step) {
    NPU_TRY(take_step());
    if (Clock::now() >= deadline) break;
  }
  return {};
}

Status RowLoop::take_step() {
  for (Program* program : programs_) program->take_launched();  // an error is of this step, in whatever program
  for (const StepRows& item : given_) std::memcpy(item.fixed, item.rows + size_t(taken_) * item.bytes, item.bytes);
  for (size_t i = 0; i < programs_.size(); ++i) {
    running_ = int(i);
    NPU_TRY(programs_[i]->run(programs_[i]->device()->default_stream()));
  }
  running_ = kNone;
  for (const StepRows& item : kept_) std::memcpy(item.rows + size_t(taken_) * item.bytes, item.fixed, item.bytes);
  ++taken_;
  have_all_ended_ = stop_ && have_all_ended();
  return {};
}

bool RowLoop::have_all_ended() const {
  bool have_all = true;
  for (size_t i = 0; i < stop_->count; ++i) {
    int64_t number;
    std::memcpy(&number, kept_[0].fixed + i * sizeof number, sizeof number);
    bool& has_ended = stop_->have_ended[i];
    has_ended = has_ended || std::find(stop_->numbers.begin(), stop_->numbers.end(), number) != stop_->numbers.end();
    have_all = have_all && has_ended;
  }
  return have_all;
}

}  // namespace npu
