#include "core/dispatch.h"

#include "core/device.h"
#include "core/eager_workspace.h"
#include "core/graph.h"
#include "core/op_info.h"

namespace npu {
namespace {

[[gnu::cold]] Status unknown_kind(OpKind kind) {
  return Status::not_implemented("op kind " + std::to_string(static_cast<int32_t>(kind)) +
                                 " has no kernels in this build; npu_cuda.kinds() lists those that have");
}

[[gnu::cold]] Status no_stream(const OpInfo& op) {
  return Status::invalid(op.name + ": the stream is null; the legacy default stream of CUDA is the handle 1");
}

// The device of the call: that of all its tensors. A call without tensors runs on the host.
Status device_of(const OpCall& call, Device** out) {
  const TensorDesc* first = call.num_outputs ? call.outputs : call.num_inputs ? call.inputs : nullptr;
  if (!first) return find_device(DeviceType::Host, 0, out);
  return find_device(static_cast<DeviceType>(first->device_type), first->device_id, out);
}

std::string range_text(const KernelTraits& traits) {
  const std::string low = std::to_string(traits.min_compute_capability);
  if (!traits.max_compute_capability) return low + " or more";
  return low + " to " + std::to_string(traits.max_compute_capability);
}

[[gnu::cold]] Status other_device(const KernelTraits& traits, int compute_capability) {
  return Status::not_implemented("it needs compute capability " + range_text(traits) + ", the device has " +
                                 std::to_string(compute_capability));
}

[[gnu::cold]] Status too_much_workspace(uint64_t workspace, const SelectionRules& rules) {
  return Status::not_implemented("it needs " + std::to_string(workspace) + " bytes of workspace, the limit is " +
                                 std::to_string(rules.workspace_limit));
}

inline Status supports_device(const KernelTraits& traits, int compute_capability) {
  const bool is_in_range =
      compute_capability >= traits.min_compute_capability &&
      (traits.max_compute_capability == 0 || compute_capability <= traits.max_compute_capability);
  if (is_in_range || compute_capability == 0) return {};  // 0: chosen for no device in particular
  return other_device(traits, compute_capability);
}

inline Status supports_rules(const Kernel& kernel, const SelectionRules& rules, uint64_t workspace) {
  if (rules.deterministic && !kernel.is(NPU_KERNEL_DETERMINISTIC)) {
    return Status::not_implemented("it is not deterministic");
  }
  return workspace <= rules.workspace_limit ? Status() : too_much_workspace(workspace, rules);
}

// Prepares for one launch and launches.
Status run(Device* device, const OpInfo& op, const KernelPtr& kernel, OpCall& call, uint64_t workspace) {
  ActiveDevice active;
  NPU_TRY(active.set(device));
  EagerWorkspace memory;
  NPU_TRY(memory.take(device, call.stream, workspace, &call.workspace));
  call.workspace_bytes = workspace;
  NPU_TRY(kernel->prepare(call, &call.state));
  std::shared_ptr<void> state;
  if (call.state) state.reset(call.state, [kernel](void* made) { kernel->release(made); });
  return launch_or_record(device, op, kernel, call, state).at([&] { return op.name + " by " + kernel->traits().id; });
}

Status checked(const OpInfo& op, OpCall* call, Device** device) {
  NPU_TRY(check_call(op, *call, true));
  if (call->stream == nullptr) return no_stream(op);
  NPU_TRY(device_of(*call, device));
  call->compute_capability = (*device)->compute_capability();
  return {};
}

Status takes_dtype(const Kernel& kernel, const OpCall& call) {
  if (kernel.may_take(call)) return {};
  return expect_dtype(call.inputs[0], kernel.traits().input_dtype, "input 0");
}

// What select() chooses, without a word about the others: most of them are of another dtype, and are not asked.
const KernelPtr* choose(const RegisteredOp& op, const OpCall& call, DeviceType device, const SelectionRules& rules,
                        uint64_t* workspace) {
  for (const KernelPtr& kernel : op.kernels(device)) {
    if (kernel->may_take(call) && takes(*kernel, call, rules, workspace).ok()) return &kernel;
  }
  return nullptr;
}

// Keeps what was found for a call, if there is a place for it.
void remember(uint64_t version, const OpInfo& op, const OpCall& call, Device* device,
              const KernelPtr* kernel, uint64_t workspace) {
  const int count = call.num_inputs + call.num_outputs;
  CallMemo& memo = memo_of(op.kind);
  ++memo.changes;
  memo.version = 0;
  if (count > CallMemo::kMostTensors || call.attrs.bytes > CallMemo::kMostAttrs) return;
  memo.version = version;
  memo.kind = op.kind;
  memo.op = &op;
  memo.kernel = kernel;
  memo.device = device;
  memo.workspace_bytes = workspace;
  memo.num_inputs = call.num_inputs;
  memo.num_outputs = call.num_outputs;
  memo.schema_id = call.attrs.schema_id;
  memo.attrs_bytes = call.attrs.bytes;
  if (call.attrs.bytes > 0) std::memcpy(memo.attrs, call.attrs.data, call.attrs.bytes);
  std::copy_n(call.inputs, call.num_inputs, memo.tensors);
  std::copy_n(call.outputs, call.num_outputs, memo.tensors + call.num_inputs);
  memo.bytes = 0;
  for (int i = 0; i < count; ++i) memo.bytes += nbytes(memo.tensors[i]);
}

}  // namespace

CallMemo& memo_of(OpKind kind) {
  constexpr size_t kMemos = 8;
  thread_local CallMemo memos[kMemos];
  return memos[static_cast<uint32_t>(kind) % kMemos];
}

Status takes(const Kernel& kernel, const OpCall& call, const SelectionRules& rules, uint64_t* workspace) {
  NPU_TRY(takes_dtype(kernel, call));
  NPU_TRY(supports_device(kernel.traits(), call.compute_capability));
  NPU_TRY(kernel.supported(call));
  *workspace = kernel.workspace_bytes(call);
  return supports_rules(kernel, rules, *workspace);
}

Selection select(const OpInfo& op, const OpCall& call, DeviceType device, const SelectionRules& rules) {
  Selection selection;
  const RegistryReader registry;
  for (const KernelPtr& kernel : registry->kernels_of(op.kind, device)) {
    const Status status = takes(*kernel, call, rules, &selection.workspace_bytes);
    if (status.ok()) {
      selection.kernel = kernel;
      return selection;
    }
    selection.refusals.push_back({kernel->traits().id, status.message()});
  }
  return selection;
}

Status refused(const OpInfo& op, const OpCall& call, const Selection& selection, DeviceType device) {
  const std::string where = device == DeviceType::Host ? "host" : "cuda";
  if (selection.refusals.empty()) return Status::not_implemented(op.name + " has no kernels on " + where);
  std::string text = "no kernel of " + op.name + " on " + where + " takes " + text_of(call);
  for (const Refusal& refusal : selection.refusals) text += "\n  " + refusal.kernel_id + ": " + refusal.reason;
  return Status::not_implemented(std::move(text));
}

Status dispatch(OpKind kind, OpCall call) {
  const RegistryReader registry;
  const RegisteredOp* known = registry->find(kind);
  if (!known) return unknown_kind(kind);
  const OpInfo& op = *known->info;
  Device* device = nullptr;
  NPU_TRY(checked(op, &call, &device));
  const DeviceType type = device->type();
  const SelectionRules rules{false, kWorkspaceLimit};
  uint64_t workspace = 0;
  if (const KernelPtr* kernel = choose(*known, call, type, rules, &workspace)) {
    remember(registry->version, op, call, device, kernel, workspace);
    return run(device, op, *kernel, call, workspace);
  }
  return refused(op, call, select(op, call, type, rules), type);
}

Status dispatch_again(const CallMemo& memo, OpKind kind, OpCall call) {
  const RegistryReader registry;
  if (!memo.is_like(registry->version, kind, call)) return dispatch(kind, call);
  const OpInfo& op = *memo.op;
  NPU_TRY(check_overlaps(op, call));
  if (call.stream == nullptr) return no_stream(op);
  call.compute_capability = memo.device->compute_capability();
  return run(memo.device, op, *memo.kernel, call, memo.workspace_bytes);
}

Status launch_by_id(const std::string& kernel_id, OpCall call) {
  const RegistryReader registry;
  const KernelPtr kernel = registry->find_kernel(kernel_id);
  if (!kernel) return Status::invalid("there is no kernel " + kernel_id + "; npu_cuda.kernels() lists them");
  const OpInfo& op = *registry->find_op(kernel->traits().kind);
  Device* device = nullptr;
  NPU_TRY(checked(op, &call, &device));
  if (device->type() != kernel->traits().device) {
    return Status::invalid("the kernel " + kernel_id + " does not run on " + device->name());
  }
  uint64_t workspace = 0;
  // Who names a kernel says that it takes this call: where it does not, the call is wrong.
  if (const Status status = takes(*kernel, call, {false, kWorkspaceLimit}, &workspace); !status.ok()) {
    return Status::invalid(kernel_id + " does not take " + text_of(call) + ": " + status.message());
  }
  return run(device, op, kernel, call, workspace);
}

}  // namespace npu
