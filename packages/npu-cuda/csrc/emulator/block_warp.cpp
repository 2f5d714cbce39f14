// What the threads of a warp do together: shuffles, votes, matches, reductions.
#include <bit>

#include "emulator/block.h"

namespace npu::emulator {

WarpValue Block::wait_for_warp(const WarpRequest& request, std::source_location where) {
  check_mask(request, where);
  Thread& self = threads_[current_];
  self.where = where;
  self.request = request;
  self.state = State::AtWarp;
  const uint32_t first = current_ / 32 * 32;
  bool complete = true;
  for (uint32_t lanes = request.mask; lanes != 0; lanes &= lanes - 1) {
    const Thread& other = threads_[first + static_cast<uint32_t>(std::countr_zero(lanes))];
    complete &= other.state == State::AtWarp && other.request.mask == request.mask && other.request.op == request.op;
  }
  if (complete) {
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
  if (!(request.mask >> lane() & 1)) fail_here("does not name lane " + std::to_string(lane()) + ", which calls it");
  for (uint32_t lanes = request.mask; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    if (first + lane >= threads_.size()) {
      fail_here("names lane " + std::to_string(lane) + ", but this warp has " +
                std::to_string(threads_.size() - first) + " threads (a block of " + std::to_string(threads_.size()) +
                "): launch whole warps, or name the lanes that there are");
    }
    if (threads_[first + lane].state == State::Ended) {
      fail_here("names lane " + std::to_string(lane) + ", but " + describe(first + lane));
    }
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

uint32_t Block::live_lanes() const {
  const uint32_t first = current_ / 32 * 32;
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < 32 && first + lane < threads_.size(); ++lane) {
    lanes |= (threads_[first + lane].state != State::Ended ? 1u : 0u) << lane;
  }
  return lanes;
}

}  // namespace npu::emulator
