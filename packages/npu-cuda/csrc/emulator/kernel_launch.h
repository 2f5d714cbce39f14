// A pending kernel launch: passed by launch.h, and queued, recorded and replayed by the fake runtime.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace npu::emulator {

struct KernelLaunch {
  const void* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  std::function<void()> thread_body;  // what each thread runs; it owns copies of the arguments
};

// The emulated cudaLaunchKernelEx: checks limits, then runs, queues or records.
cudaError_t launch_kernel(const KernelLaunch& launch, cudaStream_t stream);

// Runs all threads of all blocks now. False where one did what no kernel may; last_report() says what.
bool run_kernel(const KernelLaunch& launch);

// Which threads and blocks run before which: 0 in order, 1 reversed, any other number seeds a random order.
void set_schedule(int schedule);
int schedule();

// "kernel relu<float>(float const*, float*, long), block (0,0,0), thread (3,0,0): ..."; empty if there was none.
std::string last_report();
void set_last_report(std::string text);

// Kernels in the symbol table of a library: their names, and their __shared__ variables. In a
// stripped library, kernels are named by address and static shared memory is not poisoned.
struct SharedVariable {
  void* address;
  size_t bytes;
  std::string symbol;
};

// As in the source: "npu::relu<float>(float const*, float*, long)".
const std::string& kernel_name(const void* kernel);

// All of the library that the kernel is in.
const std::vector<SharedVariable>& shared_variables(const void* kernel);

// Bytes of those declared in the kernel itself, not in functions that it calls.
size_t static_shared_bytes(const void* kernel);

}  // namespace npu::emulator
