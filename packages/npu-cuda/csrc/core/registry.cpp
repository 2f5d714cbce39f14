#include "core/registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "core/builtin.h"

namespace npu {
namespace {

// Where the op of this kind stands, or would stand.
template <class Ops>
auto place_of(Ops& ops, OpKind kind) {
  const auto is_before = [](const RegisteredOp& op, OpKind wanted) { return op.info->kind < wanted; };
  return std::lower_bound(ops.begin(), ops.end(), kind, is_before);
}

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
  for (const RegisteredOp& other : next.ops) {
    if (op.schema && other.info->schema && other.info->schema->id == op.schema->id) {
      return Status::invalid("the attribute schema " + op.schema->name + " of " + op.name + " is that of " +
                             other.info->name);
    }
  }
  const auto place = place_of(next.ops, op.kind);
  next.ops.insert(place, {std::make_shared<const OpInfo>(std::move(op)), {}, {}});
  return {};
}

Status add_kernel(RegistrySnapshot& next, const KernelPtr& kernel) {
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
  auto& list = place_of(next.ops, traits.kind)->kernels(traits.device);
  const auto is_before = [](const KernelPtr& a, const KernelPtr& b) {
    if (a->traits().priority != b->traits().priority) return a->traits().priority > b->traits().priority;
    return a->traits().id < b->traits().id;
  };
  list.insert(std::upper_bound(list.begin(), list.end(), kernel, is_before), kernel);
  next.kernel_by_id[traits.id] = kernel;
  return {};
}

}  // namespace

const RegisteredOp* RegistrySnapshot::find(OpKind kind) const {
  const auto usual = size_t(kind);  // where the kinds have no gaps
  if (usual < ops.size() && ops[usual].info->kind == kind) return &ops[usual];
  const auto place = place_of(ops, kind);
  return place == ops.end() || place->info->kind != kind ? nullptr : &*place;
}

const OpInfo* RegistrySnapshot::find_op(OpKind kind) const {
  const RegisteredOp* op = find(kind);
  return op ? op->info.get() : nullptr;
}

const OpInfo* RegistrySnapshot::find_op(const std::string& name) const {
  const auto is_named = [&](const RegisteredOp& op) { return op.info->name == name; };
  const auto found = std::find_if(ops.begin(), ops.end(), is_named);
  return found == ops.end() ? nullptr : found->info.get();
}

const std::vector<KernelPtr>& RegistrySnapshot::kernels_of(OpKind kind, DeviceType device) const {
  static const std::vector<KernelPtr> none;
  const RegisteredOp* op = find(kind);
  return op ? op->kernels(device) : none;
}

KernelPtr RegistrySnapshot::find_kernel(const std::string& id) const {
  const auto found = kernel_by_id.find(id);
  return found == kernel_by_id.end() ? nullptr : found->second;
}

RegistryReader::RegistryReader()
    : epoch_(ReaderEpoch::begin()),
      snapshot_(KernelRegistry::instance().current_.load(std::memory_order_seq_cst)) {}

RegistryReader::~RegistryReader() {
  epoch_.end();
  KernelRegistry& registry = KernelRegistry::instance();
  if (registry.has_replaced_.load(std::memory_order_relaxed)) [[unlikely]] registry.collect();
}

KernelRegistry& KernelRegistry::instance() {
  // Never destroyed: kernels from Python must not be released after the interpreter is gone.
  static KernelRegistry* registry = [] {
    auto* made = new KernelRegistry();
    const Status status = made->add(builtin_ops(), builtin_kernels());
    if (!status.ok()) {  // only a mistake in builtin/ops.cpp
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

Status KernelRegistry::add(std::vector<OpInfo> ops, const std::vector<KernelPtr>& kernels) {
  {
    const std::lock_guard lock(writing_);
    RegistrySnapshot next = *newest_;
    for (OpInfo& op : ops) NPU_TRY(add_op(next, std::move(op)));
    for (const KernelPtr& kernel : kernels) NPU_TRY(add_kernel(next, kernel));
    publish(std::move(next));
  }
  return collect(), Status();
}

Status KernelRegistry::remove(const std::string& kernel_id) {
  {
    const std::lock_guard lock(writing_);
    RegistrySnapshot next = *newest_;
    const KernelPtr kernel = next.find_kernel(kernel_id);
    if (!kernel) return Status::invalid("there is no kernel " + kernel_id);
    next.kernel_by_id.erase(kernel_id);
    std::erase(place_of(next.ops, kernel->traits().kind)->kernels(kernel->traits().device), kernel);
    publish(std::move(next));
  }
  return collect(), Status();
}

void KernelRegistry::publish(RegistrySnapshot next) {
  ++next.version;
  SnapshotPtr old = std::exchange(newest_, std::make_unique<const RegistrySnapshot>(std::move(next)));
  current_.store(newest_.get(), std::memory_order_seq_cst);
  replaced_.push_back({std::move(old), ReaderEpoch::advance()});
  has_replaced_.store(true, std::memory_order_relaxed);
}

void KernelRegistry::collect() {
  std::vector<Replaced> unused;
  const std::lock_guard lock(writing_);
  const uint64_t oldest = ReaderEpoch::oldest();
  const auto is_read = [&](const Replaced& one) { return one.epoch >= oldest; };
  const auto first = std::partition(replaced_.begin(), replaced_.end(), is_read);
  std::move(first, replaced_.end(), std::back_inserter(unused));
  replaced_.erase(first, replaced_.end());
  has_replaced_.store(!replaced_.empty(), std::memory_order_relaxed);
}

}  // namespace npu
