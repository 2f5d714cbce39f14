// Description of a program for people and tools: its slots and their memory, its ops, the selected kernels and
// the refusals of others, and the cost of a run.
#pragma once

#include <optional>

#include "core/program.h"

namespace npu {

enum class ProgramFormat { Text, Json, Dot };

// InvalidArgument unless it is "text", "json" or "dot".
Status find_format(const std::string& name, ProgramFormat* out);

std::string describe(const Program& program, ProgramFormat format);

// Of one run. All zero before kernels are chosen.
Cost cost_of(const Program& program);

struct MemoryUse {
  uint64_t temporary_bytes = 0;  // of all temporaries and workspaces, as if none shared memory
  uint64_t workspace_bytes = 0;  // of all workspaces
};
MemoryUse memory_of(const Program& program);

// The first and the last op that use a slot; nothing where none does.
std::optional<std::pair<int, int>> lifetime_of(const Program& program, int slot);

}  // namespace npu
