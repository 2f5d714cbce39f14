// Program: a sequence of ops over slots, prepared once and run many times with nothing but launches. A slot holds
// a tensor of a fixed description: external ones are bound to memory of the caller, temporaries reside in the arena of
// the program, and views in the memory of another slot. Kernels are selected in finalize(). It is used by one thread at
// a time: a second thread is refused, and does not wait.
#pragma once

#include <functional>
#include <utility>

#include "core/dispatch.h"
#include "core/graph.h"
#include "core/planner.h"
#include "core/topology.h"

namespace npu {

struct ProgramSlot {
  TensorDesc desc;  // with memory, once it is bound or placed in the arena
  bool is_external;
  std::string name;
  int base = kOwnMemory;      // of a view: the slot in whose memory it resides, which is not a view itself
  uint64_t base_offset = 0;   // of a view: bytes from the start of its base
  std::vector<int> views = {};
  bool is_bound = false;
  bool is_written = false;    // by an op, as itself or as a view
  uint64_t arena_offset = 0;  // of a temporary, or a view of one
  int first_op = -1;          // that uses it, or a view of it; -1: none
  int last_op = -1;

  static constexpr int kOwnMemory = -1;
  bool is_view() const { return base != kOwnMemory; }
  bool is_used() const { return first_op >= 0; }
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

// Memory for the arena; the program calls it once, in finalize(), and keeps `owner`.
using Allocator = std::function<Status(uint64_t bytes, void** data, std::shared_ptr<void>* owner)>;

class Program {
 public:
  explicit Program(Device* device, SelectionRules rules = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Adds a slot and returns its number. Data and device of `desc` are ignored, its other fields fit together;
  // `desc.alignment` is what bound memory has at least.
  Status add_slot(TensorDesc desc, bool is_external, std::string name, int* slot);
  // Adds a slot over the memory of another one, from `offset` bytes on. Its alignment is what that of the base and
  // the offset allow, whatever `desc` says.
  Status add_view(int base, TensorDesc desc, uint64_t offset, std::string name, int* slot);
  // Adds an op, by kind, or by the id of the one kernel that may run it.
  Status add_op(OpKind kind, const std::string& kernel_id, std::vector<int> inputs, std::vector<int> outputs,
                AttrBlob attrs, int* index);
  // Chooses kernels, plans and allocates the arena, prepares kernels. Nothing can be added after it.
  Status finalize(const Allocator& allocator = nullptr);
  // Ties an external slot and its views to memory: dtype, shape, strides and device must be those of the slot.
  Status bind(int slot, const TensorDesc& tensor);
  // bind() of tensors that are as their slots, which are external, say: only their addresses may be new.
  Status rebind(const std::vector<int>& slots, const std::vector<void*>& addresses);
  // Launches all ops on a stream (never null). InvalidArgument where a slot is unbound or another thread runs it.
  Status run(void* stream);
  // The number of ops that run() has launched since the last time somebody asked, if it was one run that failed.
  int take_launched() { return std::exchange(launched_, 0); }
  // Records what run() would do.
  Status capture(CaptureMode mode, Topology topology, std::unique_ptr<Graph>* out);

  using Slot = ProgramSlot;
  using Op = ProgramOp;
  Device* device() const { return device_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<std::vector<SlotUse>>& uses() const { return uses_; }  // of each slot, in the order of ops
  bool is_final() const { return is_final_; }
  // The slot that has the memory of a view; any other slot itself.
  int root_of(int slot) const { return slots_[slot].is_view() ? slots_[slot].base : slot; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  // Bytes that each op reads and writes, workspace included. Needs bound slots.
  std::vector<Accesses> accesses() const;
  // The recording that capture() makes a graph of, before its end. *topology says afterwards what
  // Auto has become.
  Status record(CaptureMode mode, Topology* topology, std::unique_ptr<Recording>* out,
                std::vector<GraphNode>* nodes);
  // What a graph of this program has to keep alive, besides the tensors that are bound.
  std::shared_ptr<void> resources() const;

 private:
  struct Resources;

  Status begin(const Exclusive& exclusive, const char* action, bool is_final) const;
  Status find_op(OpKind kind, const std::string& kernel_id, Op* op) const;
  Status take_slots(AttrBlob attrs, Op* op) const;
  Status check_view(int base, const TensorDesc& desc, uint64_t offset) const;
  Status check_slots(const Op& op) const;
  Status check_output(const Op& op, size_t output) const;
  Status check_rest_is_written(int slot) const;
  bool covers_base(int slot) const;
  bool are_same(int a, int b) const;
  bool share_bytes(int a, int b) const;
  Status select_kernel(Op* op);
  void use_slots(int index, const Op& op);
  void use_slot(int slot, SlotUse use);
  Status plan(const Allocator& allocator);
  Status place(const Allocator& allocator);
  Status prepare();
  void set_data(int slot, void* data);
  void point_ops(int slot, void* data);

  Status require_ready();
  // What each op is captured after.
  std::vector<std::vector<int>> edges(Topology* topology) const;
  Status run_in_capture();
  Status check_slot_number(int slot) const;
  Status record_op(size_t index, const std::vector<int>& after, Recording* recording) const;
  std::string name_of_slot(int slot) const;    // "slot 2 ('x')"
  std::string name_of_op(size_t index) const;  // "op 3 (EltwiseRelu by relu.f32.host)"

  Device* device_;
  SelectionRules rules_;
  std::vector<Slot> slots_;
  std::vector<Op> ops_;
  std::vector<std::vector<SlotUse>> uses_;
  std::vector<size_t> unchecked_;  // ops whose pointers are to be checked before they run
  std::shared_ptr<Resources> resources_;
  uint64_t arena_bytes_ = 0;
  int num_unbound_ = 0;      // external slots that ops use
  void* stream_ = nullptr;   // of the last run
  int launched_ = 0;         // ops of the last run
  bool is_final_ = false;
  InUse is_running_;
};

// What graphs of a program keep alive: the memory of the arena, and the states prepared by kernels.
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
