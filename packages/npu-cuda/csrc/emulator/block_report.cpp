// What a block says about threads that did what no kernel may.
#include <cstdlib>

#include "emulator/block.h"

namespace npu::emulator {
namespace {

std::string text_of(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

}  // namespace

uint3 Block::index_of(uint32_t thread) const {
  if (size_.x == threads_.size()) return {thread, 0, 0};
  return {thread % size_.x, thread / size_.x % size_.y, thread / (size_.x * size_.y)};
}

std::string Block::place() const { return "block " + text_of(index_) + ", "; }

std::string Block::describe(uint32_t number) const {
  const Thread& thread = threads_[number];
  const std::string name = "thread " + text_of(index_of(number));
  if (thread.state == State::Ended) return name + " has ended";
  if (thread.state == State::Ready) return name;
  const std::string line = std::string(thread.where.file_name()) + ":" + std::to_string(thread.where.line());
  if (thread.state == State::AtBarrier) return name + " waits at __syncthreads (" + line + ")";
  const WarpRequest& request = thread.request;
  return name + " waits at " + request.name + " (" + line + ", mask " + mask_text(request.mask) + ")";
}

std::string Block::mask_text(uint32_t mask) {
  static const char digits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[mask >> shift & 15];
  return text;
}

// Called where every thread that is left waits. At barriers alone they would go on, so one waits for its warp.
std::string Block::why_nothing_runs() const {
  uint32_t waiting = 0;
  while (waiting < threads_.size() && threads_[waiting].state != State::AtWarp) ++waiting;
  if (waiting == threads_.size()) return place() + "every thread waits, none for its warp: a bug of the emulator";
  const WarpRequest& request = threads_[waiting].request;
  uint32_t blocking = waiting / 32 * 32;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(request.mask >> lane & 1)) continue;
    blocking = waiting / 32 * 32 + lane;
    if (!waits_for(threads_[blocking], request)) break;
  }
  return place() + describe(waiting) + ", but " + describe(blocking);
}

void Block::fail(const std::string& what) {
  report_ = place() + "thread " + text_of(index_of(current_)) + ": " + what;
  threads_[current_].fiber->suspend(true);
  std::abort();  // a launch that failed is never resumed
}

}  // namespace npu::emulator
