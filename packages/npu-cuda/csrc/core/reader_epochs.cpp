#include "core/reader_epochs.h"

#include <algorithm>
#include <deque>
#include <mutex>

namespace npu {
namespace {

std::mutex epochs_guard;

// One for each thread that has ever read at the same time as the others.
std::deque<ReaderEpoch>& epochs() {
  static auto* all = new std::deque<ReaderEpoch>();  // outlives every thread
  return *all;
}

}  // namespace

// Gives the place of its thread to others.
struct ReaderThread {
  static ReaderEpoch& take() {
    const std::lock_guard lock(epochs_guard);
    const auto is_free = [](const ReaderEpoch& epoch) { return !epoch.is_taken_; };
    const auto found = std::find_if(epochs().begin(), epochs().end(), is_free);
    ReaderEpoch& epoch = found == epochs().end() ? epochs().emplace_back() : *found;
    epoch.is_taken_ = true;
    return epoch;
  }
  ~ReaderThread() {
    const std::lock_guard lock(epochs_guard);
    epoch.is_taken_ = false;
    ReaderEpoch::own_ = nullptr;
  }
  ReaderEpoch& epoch = take();
};

ReaderEpoch& ReaderEpoch::join() {
  thread_local const ReaderThread thread;
  return *(own_ = &thread.epoch);
}

uint64_t ReaderEpoch::oldest() {
  const std::lock_guard lock(epochs_guard);
  uint64_t oldest = kIdle;
  for (const ReaderEpoch& epoch : epochs()) {
    oldest = std::min(oldest, epoch.since_.load(std::memory_order_seq_cst));
  }
  return oldest;
}

}  // namespace npu
