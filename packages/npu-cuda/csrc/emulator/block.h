// Execution of one block of threads at a time: the running thread, and the barriers where others wait. Each thread is
// a fiber that runs until it waits for a barrier, for its warp, or ends. What a kernel may not do (threads of a block
// at different barriers, a thread that ends while others wait for it, a warp function that names a lane that is not
// there) ends the whole launch with a report, where hardware would hang or compute something else each time.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "emulator/fiber.h"

namespace npu::emulator {

// What the threads of a warp do together.
enum class WarpOp { Sync, Shuffle, Ballot, Match, Reduce };
using WarpValue = std::array<uint64_t, 2>;

struct WarpRequest {
  WarpOp op;
  const char* name;  // "__shfl_down_sync"
  uint32_t mask;     // the lanes that take part
  WarpValue value{};
  uint32_t source = 0;                             // Shuffle: the lane to read from
  uint64_t (*combine)(uint64_t, uint64_t) = nullptr;  // Reduce
};

// Undefined bytes: a quiet NaN in float, double, half and bfloat16; a large number in integers.
inline constexpr uint16_t kPoison = 0x7ffd;
void poison(void* memory, size_t bytes);

class Block {
 public:
  // Runs every thread of the block. Empty where all went well, else the report.
  std::string run(dim3 size, uint3 index, const std::function<void()>& thread_body, int schedule);

  // From the thread that runs. Returns how many threads passed a predicate that holds.
  int wait_at_barrier(bool predicate, std::source_location where);
  // Returns this lane's part of the result: Shuffle the value, Ballot and Match a mask, Reduce the combination.
  WarpValue wait_for_warp(const WarpRequest& request, std::source_location where);
  uint32_t lane() const { return current_ % 32; }
  uint32_t live_lanes() const { return warp().present & ~warp().ended; }
  // Lets other threads run first; for loops that wait for a value in memory.
  void pause() { threads_[current_].fiber->suspend(); }
  [[noreturn]] void fail(const std::string& what);

 private:
  enum class State { Ready, AtBarrier, AtWarp, Ended };
  struct Thread {
    State state = State::Ready;
    Fiber* fiber = nullptr;  // null until it has run for the first time
    std::source_location where;
    WarpRequest request{};
    WarpValue result{};
  };

  // Lanes of a warp, as masks.
  struct Warp {
    uint32_t present = 0;
    uint32_t ended = 0;
    uint32_t waiting = 0;  // in a function of the warp
  };

  void run_thread(uint32_t thread);
  void end_thread();
  void finish_warp_op(uint32_t first_lane, uint32_t mask);
  static bool waits_for(const Thread& thread, const WarpRequest& request);
  void check_mask(const WarpRequest& request, std::source_location where);
  std::string why_nothing_runs() const;
  std::string describe(uint32_t thread) const;
  std::string place() const;
  static std::string mask_text(uint32_t mask);
  uint3 index_of(uint32_t thread) const;
  const Warp& warp() const { return warps_[current_ / 32]; }
  void make_threads();
  void order_threads(int schedule);
  static void thread_main();

  dim3 size_;
  uint3 index_{};
  const std::function<void()>* thread_body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<uint32_t> order_;
  std::mt19937 random_;
  uint32_t current_ = 0;
  uint32_t ended_ = 0;
  uint32_t at_barrier_ = 0;
  uint32_t first_at_barrier_ = 0;
  int predicates_ = 0;
  int predicates_of_last_barrier_ = 0;
  std::string report_;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept for the next block
  std::vector<Fiber*> free_fibers_;
};

// The block that runs, on the one thread that runs kernels.
Block& block();

}  // namespace npu::emulator
