// ReaderEpoch: since when each thread reads what others replace. Epochs are counted; who replaces something
// advances them, and destroys it once no thread reads since an epoch that was not over then.
#pragma once

#include <atomic>
#include <cstdint>

namespace npu {

class ReaderEpoch {
 public:
  // Until end() this thread reads. May be nested: the first begin counts.
  static ReaderEpoch& begin() {
    ReaderEpoch& own = own_ ? *own_ : join();
    // In one order with advance(): who does not see this reader has replaced everything before it reads.
    if (own.depth_++ == 0) own.since_.store(now_.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
    return own;
  }
  void end() {
    if (--depth_ == 0) since_.store(kIdle, std::memory_order_release);
  }

  // Ends an epoch and returns it.
  static uint64_t advance() { return now_.fetch_add(1, std::memory_order_seq_cst); }
  // The earliest epoch in which a thread that still reads began.
  static uint64_t oldest();

 private:
  friend struct ReaderThread;
  static constexpr uint64_t kIdle = UINT64_MAX;
  static ReaderEpoch& join();

  static inline std::atomic<uint64_t> now_{0};
  static inline thread_local constinit ReaderEpoch* own_ = nullptr;
  std::atomic<uint64_t> since_{kIdle};
  int depth_ = 0;
  bool is_taken_ = false;  // by a thread that lives
};

}  // namespace npu
