// Resources of a program that its graphs keep alive: the memory of the arena, and the states prepared by kernels.
#pragma once

#include "core/program.h"

namespace npu {

struct Program::Resources {
  Resources() = default;
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;
  ~Resources();

  Status allocate(Device* device, uint64_t bytes, const Allocator& allocator);

  char* arena = nullptr;  // a multiple of kArenaAlignment; null where it has no bytes
  std::shared_ptr<void> memory_owner;
  std::vector<std::pair<KernelPtr, void*>> states;
};

}  // namespace npu
