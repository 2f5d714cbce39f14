// InUse: whether something that does one thing at a time is in use. A use by another thread that goes on while the process
// is forked does not end in the child, which lacks that thread: it does not count there.
#pragma once

#include <atomic>
#include <cstdint>

namespace npu {

// 1, and one more in each child.
extern std::atomic<uint32_t> generation_of_process;

class InUse {
 public:
  // False if it is in use already.
  bool begin() {
    const uint32_t now = generation_of_process.load(std::memory_order_relaxed);
    uint32_t seen = user_.load(std::memory_order_relaxed);
    return seen != now && user_.compare_exchange_strong(seen, now, std::memory_order_acquire);
  }
  void end() { user_.store(0, std::memory_order_release); }
  explicit operator bool() const { return user_ == generation_of_process; }

 private:
  std::atomic<uint32_t> user_{0};  // the generation of the process that uses it; 0: none
};

// Uses something until the end of a block, if no other thread does. It does not wait.
class Exclusive {
 public:
  explicit Exclusive(InUse* use) : use_(use), is_held_(use->begin()) {}
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;
  ~Exclusive() {
    if (is_held_) use_->end();
  }
  bool is_held() const { return is_held_; }

 private:
  InUse* use_;
  bool is_held_;
};

}  // namespace npu
