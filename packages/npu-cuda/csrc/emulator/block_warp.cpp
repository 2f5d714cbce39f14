// What the threads of a warp do together: shuffles, votes, matches, reductions.
#include <bit>

#include "emulator/block.h"

namespace npu::emulator {

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

}  // namespace npu::emulator
