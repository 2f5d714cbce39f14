#include "core/later.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace npu {
namespace {

using Owners = std::vector<std::unique_ptr<std::shared_ptr<void>>>;

std::mutex waiting_guard;
std::atomic<bool> is_any{false};

Owners& waiting() {
  static auto* all = new Owners();  // outlives every user
  return *all;
}

}  // namespace

void drop_later(std::unique_ptr<std::shared_ptr<void>> owner) noexcept {
  const std::lock_guard lock(waiting_guard);
  waiting().push_back(std::move(owner));
  is_any = true;
}

bool has_dropped() { return is_any.load(std::memory_order_relaxed); }

void drop_now() {
  Owners dropped;  // destroyed without the lock
  const std::lock_guard lock(waiting_guard);
  dropped.swap(waiting());
  is_any = false;
}

}  // namespace npu
