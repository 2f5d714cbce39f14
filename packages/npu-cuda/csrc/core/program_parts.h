// The parts of a program: slots, which hold tensors, and ops over them. Program fills them in and exposes
// them; only it changes them.
#pragma once

#include "core/dispatch.h"

namespace npu {

struct ProgramSlot {
  TensorDesc desc;  // with memory, once it is bound or placed in the arena
  bool is_external;
  std::string name;
  bool is_bound = false;
  bool is_written = false;    // by an op
  uint64_t arena_offset = 0;  // of a temporary
};

struct ProgramOp {
  KernelPtr kernel;  // after finalize; until then the one that was asked for, null where finalize chooses
  OpCall call{};
  const OpInfo* info = nullptr;
  bool is_pinned = false;   // its kernel was asked for by id
  bool is_checked = false;  // its pointers, since the last binding
  std::vector<int> inputs, outputs;  // slots
  std::vector<TensorDesc> tensors;   // inputs, then outputs: call points here
  std::vector<char> attrs;           // call points here
  std::vector<Refusal> refusals;     // of kernels that finalize asked before the one it chose
  uint64_t workspace_offset = 0;     // in the arena
};

// A slot as a tensor of an op.
struct SlotUse {
  int op;
  int position;  // in ProgramOp::tensors
};

}  // namespace npu
