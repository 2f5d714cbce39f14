#include "emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace npu::emulator {
namespace {

constexpr size_t kGuardBytes = 64 << 10;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMemoryBytes = kGuardBytes + (256 << 10);
#else
constexpr size_t kMemoryBytes = kGuardBytes + (80 << 10);
#endif

// The fiber that starts; kernels run on one thread of the operating system at a time.
Fiber* starting = nullptr;
void (*starting_entry)() = nullptr;

}  // namespace

#if defined(__x86_64__)
// Saves what a call preserves, and the stack pointer in *save; then takes the other stack and returns there.
extern "C" void npu_emulator_switch(void** save, void* load);
asm(R"(
  .text
  .hidden npu_emulator_switch
  .globl npu_emulator_switch
  .type npu_emulator_switch, @function
npu_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size npu_emulator_switch, .-npu_emulator_switch
)");
#endif

Fiber::Fiber(size_t number) : stack_bytes_(kMemoryBytes - kGuardBytes - number % 64 * 256) {
  void* memory = mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::perror("emulator: no memory for the stack of an emulated thread");
    std::abort();
  }
  memory_ = static_cast<char*>(memory);
#if !defined(__x86_64__)
  context_ = new ucontext_t;
  scheduler_ = new ucontext_t;
#endif
}

Fiber::~Fiber() {
  munmap(memory_, kMemoryBytes);
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(context_);
  delete static_cast<ucontext_t*>(scheduler_);
#endif
}

void Fiber::start(void (*entry)()) {
  char* bottom = memory_ + kGuardBytes;
#if defined(__SANITIZE_ADDRESS__)
  if (!has_ended_) __asan_unpoison_memory_region(bottom, stack_bytes_);  // a thread that was given up leaves its marks
#endif
  has_ended_ = false;
  fake_stack_ = nullptr;
  starting = this;
  starting_entry = entry;
#if defined(__x86_64__)
  // As npu_emulator_switch leaves a stack: six registers and the return address; above, a null one ends the stack.
  auto* top = reinterpret_cast<void**>(bottom + stack_bytes_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context_ = top;
#else
  auto* context = static_cast<ucontext_t*>(context_);
  getcontext(context);
  context->uc_stack.ss_sp = bottom;
  context->uc_stack.ss_size = stack_bytes_;
  context->uc_link = nullptr;
  makecontext(context, &Fiber::begin, 0);
#endif
  switch_in();
}

void Fiber::resume() { switch_in(); }

void Fiber::switch_in() {
#if defined(__SANITIZE_ADDRESS__)
  void* own_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&own_fake_stack, memory_ + kGuardBytes, stack_bytes_);
#endif
#if defined(__x86_64__)
  npu_emulator_switch(&scheduler_, context_);
#else
  swapcontext(static_cast<ucontext_t*>(scheduler_), static_cast<ucontext_t*>(context_));
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own_fake_stack, nullptr, nullptr);
#endif
}

void Fiber::arrive() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &scheduler_bottom_, &scheduler_bytes_);
#endif
}

void Fiber::suspend([[maybe_unused]] bool ended) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ended ? nullptr : &fake_stack_, scheduler_bottom_, scheduler_bytes_);
#endif
#if defined(__x86_64__)
  npu_emulator_switch(&context_, scheduler_);
#else
  swapcontext(static_cast<ucontext_t*>(context_), static_cast<ucontext_t*>(scheduler_));
#endif
  arrive();
}

void Fiber::begin() {
  Fiber* self = starting;
  self->arrive();
  starting_entry();
  self->has_ended_ = true;
  self->suspend(true);
  std::abort();  // an ended fiber is never resumed
}

}  // namespace npu::emulator
