#include "emulator/block.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "emulator/device_code.h"

// CUDA's own names, which kernels read.
uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace npu::emulator {
namespace {

std::string text_of(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

}  // namespace

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
  threads_.resize(count);
  for (Thread& thread : threads_) {
    thread.state = State::Ready;
    thread.fiber = nullptr;  // all else is written where it waits
  }
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

// The thread waits for the same function of the same lanes.
bool Block::waits_for(const Thread& thread, const WarpRequest& request) {
  return thread.state == State::AtWarp && thread.request.mask == request.mask && thread.request.op == request.op;
}

WarpValue Block::wait_for_warp(const WarpRequest& request, std::source_location where) {
  check_mask(request, where);
  Thread& self = threads_[current_];
  self.where = where;
  self.request = request;
  self.state = State::AtWarp;
  Warp& warp = warps_[current_ / 32];
  warp.waiting |= 1u << lane();
  const uint32_t first = current_ / 32 * 32;
  bool complete = (warp.waiting & request.mask) == request.mask;
  for (uint32_t lanes = request.mask; complete && lanes != 0; lanes &= lanes - 1) {
    complete = waits_for(threads_[first + static_cast<uint32_t>(std::countr_zero(lanes))], request);
  }
  if (complete) {
    warp.waiting &= ~request.mask;
    finish_warp_op(first, request.mask);
  } else {
    self.fiber->suspend();
  }
  return self.result;
}

void Block::check_mask(const WarpRequest& request, std::source_location where) {
  const uint32_t first = current_ / 32 * 32;
  const auto fail_here = [&](const std::string& why) {
    fail(std::string(request.name) + " at " + where.file_name() + ":" + std::to_string(where.line()) + " " + why);
  };
  if (!(request.mask >> lane() & 1)) {
    fail_here("does not name lane " + std::to_string(lane()) + ", which calls it");
  }
  if (const uint32_t absent = request.mask & ~warp().present; absent != 0) {
    fail_here("names lane " + std::to_string(std::countr_zero(absent)) + ", but this warp has " +
              std::to_string(threads_.size() - first) + " threads (a block of " + std::to_string(threads_.size()) +
              "): launch whole warps, or name the lanes that there are");
  }
  if (const uint32_t ended = request.mask & warp().ended; ended != 0) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(ended));
    fail_here("names lane " + std::to_string(lane) + ", but " + describe(first + lane));
  }
}

void Block::finish_warp_op(uint32_t first, uint32_t mask) {
  const WarpOp op = threads_[current_].request.op;
  uint32_t ballot = 0;
  uint64_t combined = 0;
  bool started = false;
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const WarpRequest& request = threads_[first + lane].request;
    ballot |= (request.value[0] != 0 ? 1u : 0u) << lane;
    if (op == WarpOp::Reduce) combined = started ? request.combine(combined, request.value[0]) : request.value[0];
    started = true;
  }
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    Thread& thread = threads_[first + static_cast<uint32_t>(std::countr_zero(lanes))];
    thread.state = State::Ready;
    if (op == WarpOp::Ballot) thread.result = {ballot, 0};
    if (op == WarpOp::Reduce) thread.result = {combined, 0};
    if (op == WarpOp::Shuffle) {
      poison(&thread.result, sizeof(thread.result));
      const uint32_t source = thread.request.source;
      if (mask >> source & 1) thread.result = threads_[first + source].request.value;
    }
    if (op != WarpOp::Match) continue;
    thread.result = {0, 0};
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      if (threads_[first + lane].request.value == thread.request.value) thread.result[0] |= 1u << lane;
    }
  }
}

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
