// A stack of its own for each thread of a block, and the switch between it and the scheduler. x86-64 switches in a
// few nanoseconds by assembly; other machines use ucontext. Below each stack lies a guard region: a kernel that
// overflows its stack crashes instead of writing into its neighbour. AddressSanitizer is notified of every switch.
#pragma once

#include <cstddef>

namespace npu::emulator {

class Fiber {
 public:
  // number: which of many; their stacks begin at different offsets, so that they do not share cache lines' places.
  explicit Fiber(size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs entry on this stack, until it suspends or ends. Whatever ran there before is forgotten.
  void start(void (*entry)());
  // Goes on where suspend was called.
  void resume();
  // From the fiber: back to whoever started or resumed it. ended: it is not resumed again.
  void suspend(bool ended = false);

 private:
  void switch_in();

  char* memory_;               // guard region, then stack
  size_t stack_bytes_;
  void* context_ = nullptr;    // where the fiber stands: stack pointer or ucontext_t
  void* scheduler_ = nullptr;  // where the scheduler stands
  bool has_ended_ = true;       // what ran there returned, or nothing did
  void* fake_stack_ = nullptr;  // of AddressSanitizer
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_bytes_ = 0;

  static void begin();
  void arrive();
};

}  // namespace npu::emulator
