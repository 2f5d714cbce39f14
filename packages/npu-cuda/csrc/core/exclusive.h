// Exclusive: holds a flag until the end of a block, if no other thread holds it. It does not wait.
#pragma once

#include <atomic>

namespace npu {

class Exclusive {
 public:
  explicit Exclusive(std::atomic<bool>* flag)
      : flag_(flag), is_held_(!flag->exchange(true, std::memory_order_acquire)) {}
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;
  ~Exclusive() {
    if (is_held_) flag_->store(false, std::memory_order_release);
  }
  bool is_held() const { return is_held_; }

 private:
  std::atomic<bool>* flag_;
  bool is_held_;
};

}  // namespace npu
