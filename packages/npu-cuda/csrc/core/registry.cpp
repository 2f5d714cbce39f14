#include "core/registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ops/all.h"

namespace npu {
namespace {

Status add_op(RegistrySnapshot& next, OpInfo op) {
  if (op.name.empty()) return Status::invalid("an op of " + op.origin + " has no name");
  if (const OpInfo* other = next.find_op(op.name)) {
    return Status::invalid("the op " + op.name + " of " + op.origin + " is there already, from " + other->origin);
  }
  if (op.num_outputs < 1 || op.num_outputs > kMaxOutputs || op.min_inputs < 0 || op.min_inputs > op.max_inputs ||
      op.max_inputs > kMaxInputs) {
    return Status::invalid("the op " + op.name + " of " + op.origin + " has no proper counts of inputs and outputs");
  }
  if (next.find_op(op.kind)) {
    return Status::invalid("the op kind " + std::to_string(static_cast<int32_t>(op.kind)) + " of " + op.name + " is taken");
  }
  for (const auto& other : next.ops) {
    if (op.schema && other->schema && other->schema->id == op.schema->id) {
      return Status::invalid("the attribute schema " + op.schema->name + " of " + op.name + " is that of " + other->name);
    }
  }
  auto shared = std::make_shared<const OpInfo>(std::move(op));
  next.op_by_kind[static_cast<int32_t>(shared->kind)] = shared;
  next.op_by_name[shared->name] = shared;
  const auto is_before = [](const auto& a, const auto& b) { return a->kind < b->kind; };
  next.ops.insert(std::upper_bound(next.ops.begin(), next.ops.end(), shared, is_before), shared);
  return {};
}

Status add_kernel(RegistrySnapshot& next, KernelPtr kernel) {
  const KernelTraits& traits = kernel->traits();
  if (traits.id.empty()) return Status::invalid("a kernel of " + traits.origin + " has no id");
  if (const KernelPtr other = next.find_kernel(traits.id)) {
    return Status::invalid("the kernel " + traits.id + " of " + traits.origin + " is there already, from " +
                           other->traits().origin);
  }
  if (!next.find_op(traits.kind)) {
    return Status::invalid("the kernel " + traits.id + " of " + traits.origin + " is of an op that is not there: kind " +
                           std::to_string(static_cast<int32_t>(traits.kind)));
  }
  auto& list = next.kernels[{static_cast<int32_t>(traits.kind), traits.device}];
  const auto is_before = [](const KernelPtr& a, const KernelPtr& b) {
    if (a->traits().priority != b->traits().priority) return a->traits().priority > b->traits().priority;
    return a->traits().id < b->traits().id;
  };
  list.insert(std::upper_bound(list.begin(), list.end(), kernel, is_before), kernel);
  next.kernel_by_id[traits.id] = std::move(kernel);
  return {};
}

}  // namespace

const OpInfo* RegistrySnapshot::find_op(OpKind kind) const {
  const auto found = op_by_kind.find(static_cast<int32_t>(kind));
  return found == op_by_kind.end() ? nullptr : found->second.get();
}

const OpInfo* RegistrySnapshot::find_op(const std::string& name) const {
  const auto found = op_by_name.find(name);
  return found == op_by_name.end() ? nullptr : found->second.get();
}

const std::vector<KernelPtr>& RegistrySnapshot::kernels_of(OpKind kind, DeviceType device) const {
  static const std::vector<KernelPtr> none;
  const auto found = kernels.find({static_cast<int32_t>(kind), device});
  return found == kernels.end() ? none : found->second;
}

KernelPtr RegistrySnapshot::find_kernel(const std::string& id) const {
  const auto found = kernel_by_id.find(id);
  return found == kernel_by_id.end() ? nullptr : found->second;
}

KernelRegistry::KernelRegistry() { publish({}); }

KernelRegistry& KernelRegistry::instance() {
  // Never destroyed: kernels from Python must not be released after the interpreter is gone.
  static KernelRegistry* registry = [] {
    auto* made = new KernelRegistry();
    const Status status = made->add(all_ops(), all_kernels());
    if (!status.ok()) {  // only a mistake in ops/all.cpp
      std::fprintf(stderr, "npu-cuda: %s\n", status.message().c_str());
      std::abort();
    }
    return made;
  }();
  return *registry;
}

OpKind KernelRegistry::new_kind() {
  static std::atomic<int32_t> next{kFirstLibraryOp};
  return static_cast<OpKind>(next.fetch_add(1));
}

Status KernelRegistry::add(std::vector<OpInfo> ops, std::vector<KernelPtr> kernels) {
  const std::lock_guard lock(writing_);
  RegistrySnapshot next = snapshot();
  for (OpInfo& op : ops) NPU_TRY(add_op(next, std::move(op)));
  for (KernelPtr& kernel : kernels) NPU_TRY(add_kernel(next, std::move(kernel)));
  publish(std::move(next));
  return {};
}

Status KernelRegistry::remove(const std::string& kernel_id) {
  const std::lock_guard lock(writing_);
  RegistrySnapshot next = snapshot();
  const KernelPtr kernel = next.find_kernel(kernel_id);
  if (!kernel) return Status::invalid("there is no kernel " + kernel_id);
  next.kernel_by_id.erase(kernel_id);
  std::erase(next.kernels[{static_cast<int32_t>(kernel->traits().kind), kernel->traits().device}], kernel);
  publish(std::move(next));
  return {};
}

void KernelRegistry::publish(RegistrySnapshot next) {
  snapshots_.push_back(std::make_unique<const RegistrySnapshot>(std::move(next)));
  current_.store(snapshots_.back().get(), std::memory_order_release);
}

}  // namespace npu
