// Runs the blocks of a kernel one after the other, and keeps the report of what went wrong.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "emulator/block.h"
#include "emulator/device_code.h"
#include "emulator/kernel_launch.h"
#include "emulator/report.h"
#include "emulator/symbols.h"

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

}  // namespace npu::emulator
