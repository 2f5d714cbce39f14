// Launches: their limits, what is known of a kernel, and how its blocks run one after the other.
#include "emulator/kernel_launch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "emulator/block.h"
#include "emulator/device_code.h"
#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

constexpr size_t kSharedAlignment = 128;

std::mutex kernels_mutex;
std::atomic<int> schedule_in_use{0};
void* dynamic_shared = nullptr;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

std::vector<uint64_t> block_order(uint64_t blocks, int schedule) {
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), uint64_t{0});
  if (schedule == 1) std::reverse(order.begin(), order.end());
  if (schedule > 1) std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(schedule)));
  return order;
}

uint3 block_index(uint64_t block, dim3 grid) {
  const uint64_t row = block / grid.x;
  return {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(row % grid.y),
          static_cast<unsigned>(row / grid.y)};
}

constexpr uint64_t kMaxThreads = 1024;
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr size_t kMaxSharedBytes = 227 << 10;

size_t shared_limit(const void* kernel) {
  const auto raised = runtime().dynamic_shared_limit.find(kernel);
  if (raised == runtime().dynamic_shared_limit.end()) return kDefaultSharedBytes;
  return std::max(kDefaultSharedBytes, static_cast<size_t>(raised->second) + static_shared_bytes(kernel));
}

bool inside(dim3 size, unsigned x, unsigned y, unsigned z) {
  return size.x > 0 && size.y > 0 && size.z > 0 && size.x <= x && size.y <= y && size.z <= z;
}

cudaError_t check_limits(const KernelLaunch& launch) {
  const dim3 block = launch.block;
  if (!inside(launch.grid, 2147483647u, 65535, 65535)) return cudaErrorInvalidConfiguration;
  if (!inside(block, 1024, 1024, 64)) return cudaErrorInvalidConfiguration;
  if (uint64_t{block.x} * block.y * block.z > kMaxThreads) return cudaErrorInvalidConfiguration;
  if (launch.shared_bytes == 0) return cudaSuccess;
  const size_t shared = launch.shared_bytes + static_shared_bytes(launch.kernel);
  return shared > shared_limit(launch.kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

std::mutex report_mutex;
std::string text_of_last;

}  // namespace

void* dynamic_shared_memory() { return dynamic_shared; }
void set_schedule(int schedule) { schedule_in_use = schedule; }
int schedule() { return schedule_in_use; }

bool run_kernel(const KernelLaunch& launch) {
  const std::lock_guard lock(kernels_mutex);
  void* memory = nullptr;  // of just this size, so that AddressSanitizer sees where it ends
  if (launch.shared_bytes > 0 && posix_memalign(&memory, kSharedAlignment, launch.shared_bytes) != 0) std::abort();
  const Memory owner(memory);
  dynamic_shared = memory;
  gridDim = launch.grid;
  const std::vector<SharedVariable>& variables = shared_variables(launch.kernel);
  const int order = schedule_in_use;
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  for (const uint64_t index : block_order(blocks, order)) {
    for (const SharedVariable& variable : variables) poison(variable.address, variable.bytes);
    poison(memory, launch.shared_bytes);
    const std::string what = block().run(launch.block, block_index(index, launch.grid), launch.thread_body, order);
    if (what.empty()) continue;
    set_last_report("kernel " + kernel_name(launch.kernel) + ", " + what);
    return false;
  }
  return true;
}

cudaError_t launch_kernel(const KernelLaunch& launch, cudaStream_t handle) {
  return call("cudaLaunchKernelEx", [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_limits(launch); error != cudaSuccess) return error;
    return submit(stream, {cudaGraphNodeTypeKernel, [launch] {
                             if (!run_kernel(launch)) runtime().device_error = cudaErrorLaunchFailure;
                           }, launch});
  });
}

std::string last_report() {
  const std::lock_guard lock(report_mutex);
  return text_of_last;
}

void set_last_report(std::string text) {
  const std::lock_guard lock(report_mutex);
  text_of_last = std::move(text);
}

}  // namespace npu::emulator

using namespace npu::emulator;

// Registers are not counted, and the bound of __launch_bounds__ is not known: both as if there were no limit.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call("cudaFuncGetAttributes", [&] {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->sharedSizeBytes = static_shared_bytes(kernel);
    attributes->maxThreadsPerBlock = kMaxThreads;
    attributes->numRegs = 32;
    attributes->ptxVersion = 90;
    attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(shared_limit(kernel) - std::min(shared_limit(kernel), static_shared_bytes(kernel)));
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", [&] {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) + static_shared_bytes(kernel) > kMaxSharedBytes) {
      return cudaErrorInvalidValue;
    }
    runtime().dynamic_shared_limit[kernel] = value;
    return cudaSuccess;
  });
}
