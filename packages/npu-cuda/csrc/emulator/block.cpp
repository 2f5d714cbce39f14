#include "emulator/block.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "emulator/device_code.h"

// CUDA's own names, which kernels read.
uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace npu::emulator {

Block& block() {
  static Block block;
  return block;
}

void poison(void* memory, size_t bytes) {
  auto* pattern = static_cast<unsigned char*>(memory);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<unsigned char>(i % 2 == 0 ? kPoison : kPoison >> 8);
}

std::string Block::run(dim3 size, uint3 index, const std::function<void()>& thread_body, int schedule) {
  size_ = size;
  index_ = index;
  thread_body_ = &thread_body;
  make_threads();
  blockIdx = index;
  blockDim = size;
  order_threads(schedule);
  while (ended_ < threads_.size()) {
    if (schedule > 1) std::shuffle(order_.begin(), order_.end(), random_);
    bool ran = false;
    for (const uint32_t thread : order_) {
      if (threads_[thread].state != State::Ready) continue;
      ran = true;
      run_thread(thread);
      if (!report_.empty()) return report_;
    }
    if (!ran) return why_nothing_runs();
  }
  return {};
}

void Block::make_threads() {
  const uint32_t count = size_.x * size_.y * size_.z;
  threads_.assign(count, Thread{});
  warps_.assign((count + 31) / 32, Warp{~0u});
  if (count % 32 != 0) warps_.back().present = (1u << count % 32) - 1;
  ended_ = at_barrier_ = 0;
  predicates_ = 0;
  report_.clear();
  free_fibers_.clear();
  for (auto& fiber : fibers_) free_fibers_.push_back(fiber.get());
}

void Block::order_threads(int schedule) {
  order_.resize(threads_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  if (schedule == 1) std::reverse(order_.begin(), order_.end());
  if (schedule <= 1) return;
  random_.seed(static_cast<uint32_t>(schedule) * 7919u + index_.x + 31u * index_.y + 1021u * index_.z);
}

void Block::run_thread(uint32_t number) {
  Thread& thread = threads_[number];
  current_ = number;
  threadIdx = index_of(number);
  if (thread.fiber != nullptr) {
    thread.fiber->resume();
    return;
  }
  if (free_fibers_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(fibers_.size()));
    free_fibers_.push_back(fibers_.back().get());
  }
  thread.fiber = free_fibers_.back();
  free_fibers_.pop_back();
  thread.fiber->start(&Block::thread_main);
}

void Block::thread_main() {
  (*block().thread_body_)();
  block().end_thread();
}

void Block::end_thread() {
  Thread& self = threads_[current_];
  self.state = State::Ended;
  ++ended_;
  free_fibers_.push_back(self.fiber);
  for (uint32_t other = 0; at_barrier_ > 0 && other < threads_.size(); ++other) {
    if (threads_[other].state != State::AtBarrier) continue;
    report_ = place() + describe(other) + ", but " + describe(current_);
    return;
  }
  Warp& warp = warps_[current_ / 32];
  warp.ended |= 1u << lane();
  for (uint32_t lanes = warp.waiting; lanes != 0; lanes &= lanes - 1) {
    const uint32_t other = current_ / 32 * 32 + static_cast<uint32_t>(std::countr_zero(lanes));
    if (!(threads_[other].request.mask >> lane() & 1)) continue;
    report_ = place() + describe(other) + ", but " + describe(current_);
    return;
  }
}

int Block::wait_at_barrier(bool predicate, std::source_location where) {
  Thread& self = threads_[current_];
  self.where = where;
  self.state = State::AtBarrier;
  for (uint32_t other = 0; ended_ > 0 && other < threads_.size(); ++other) {
    if (threads_[other].state == State::Ended) fail(describe(current_) + ", but " + describe(other));
  }
  if (at_barrier_ == 0) first_at_barrier_ = current_;
  const std::source_location& first = threads_[first_at_barrier_].where;
  if (first.line() != where.line() || first.column() != where.column()) {
    fail(describe(current_) + ", but " + describe(first_at_barrier_));
  }
  ++at_barrier_;
  predicates_ += predicate;
  if (at_barrier_ < threads_.size()) {
    self.fiber->suspend();
  } else {
    predicates_of_last_barrier_ = predicates_;
    at_barrier_ = 0;
    predicates_ = 0;
    for (Thread& thread : threads_) thread.state = State::Ready;
  }
  return predicates_of_last_barrier_;
}

}  // namespace npu::emulator
