// Program: a row of ops over slots, prepared once and run many times with nothing but launches. A slot is a place for a
// tensor of a fixed description: external ones are bound to memory of others, temporaries lie in the program's arena.
// Kernels are chosen in finalize(). Not to be run from two threads at once: run() refuses that.
#pragma once

#include <atomic>
#include <functional>

#include "core/dispatch.h"
#include "core/planner.h"

namespace npu {

class Graph;

// Memory for the arena; the program calls it once, in finalize(), and keeps what `out` keeps alive.
using Allocator = std::function<Status(uint64_t bytes, void** data, std::shared_ptr<void>* owner)>;

class Program {
 public:
  explicit Program(Device* device, SelectionRules rules = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Adds a slot and returns its number. `desc.data` is ignored; `desc.alignment` is what bound memory has at least.
  Status add_slot(TensorDesc desc, bool is_external, std::string name, int* slot);
  // Adds an op, by kind, or by the id of the one kernel that may run it.
  Status add_op(OpKind kind, std::string kernel_id, std::vector<int> inputs, std::vector<int> outputs,
                AttrBlob attrs, int* index);
  // Chooses kernels, plans and allocates the arena, prepares kernels. Nothing can be added after it.
  Status finalize(const Allocator& allocator = nullptr);
  // Ties an external slot to memory: dtype, shape, strides and device must be those of the slot.
  Status bind(int slot, const TensorDesc& tensor);
  // Launches all ops on a stream (never null). InvalidArgument where a slot is unbound or another thread runs it.
  Status run(void* stream);
  // Records what run() would do.
  Status capture(CaptureMode mode, bool is_dag, std::unique_ptr<Graph>* out);

  struct Slot {
    TensorDesc desc;
    bool is_external;
    bool is_bound;
    std::string name;
  };
  struct Op {
    const OpInfo* info;
    std::string pinned;  // the kernel id that was asked for; empty where dispatch chooses
    KernelPtr kernel;    // after finalize
    std::vector<int> inputs, outputs;
    std::vector<char> attrs;
    uint32_t schema_id;
    uint64_t workspace_bytes;
    std::vector<Refusal> refusals;
    std::vector<TensorDesc> tensors;  // inputs, then outputs, with memory
    OpCall call;
  };
  Device* device() const { return device_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Op>& ops() const { return ops_; }
  bool is_final() const { return is_final_; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  std::vector<Accesses> accesses() const;  // bytes that each op reads and writes, workspace included; needs bound slots

 private:
  Status select_kernels();
  Status place(const Allocator& allocator);
  Status prepare();
  Status require_ready(void* stream) const;

  Device* device_;
  SelectionRules rules_;
  std::vector<Slot> slots_;
  std::vector<Op> ops_;
  std::vector<std::vector<std::pair<int, int>>> uses_;  // of each slot: op, position in Op::tensors
  std::shared_ptr<void> arena_;
  uint64_t arena_bytes_ = 0;
  int unbound_ = 0;
  bool is_final_ = false;
  std::atomic<bool> is_running_{false};
};

}  // namespace npu
