#include "bindings/holders.h"

#include <cstring>

#include "bindings/kept.h"
#include "bindings/unlocked.h"

namespace npu::bindings {
namespace {

template <class Core>
void drop(Core* core) {
  if (core->device()->type() == DeviceType::Host) return delete core;
  const Unlocked unlocked;
  delete core;
}

template <class Core>
Core& alive(const std::unique_ptr<Core, DropUnlocked>& core, const char* what) {
  if (!core) raise(Status::invalid(std::string("this ") + what + " is being destroyed by the garbage collector"));
  return *core;
}

// Memory from Python: alloc(bytes) returns a tensor of at least so many bytes.
Status allocate(nb::handle allocator, const Device& device, uint64_t bytes, void** data,
                std::shared_ptr<void>* owner, LaunchRecord* record) {
  try {
    const nb::object memory = allocator(bytes);
    TensorArguments tensors("finalize", nullptr, Hold::Longer);
    tensors.add(memory, {"finalize", "alloc(nbytes)"}, Role::Output);
    TensorDesc desc = tensors.descs()[0];
    adapt(&desc, device);
    if (!is_contiguous(desc) || uint64_t(nbytes(desc)) < bytes) {
      return Status::invalid("alloc(" + std::to_string(bytes) + ") returned " + text_of(desc) + ", " +
                             std::to_string(nbytes(desc)) + " bytes: return a contiguous tensor that is large enough");
    }
    if (desc.device_type != int32_t(device.type()) || desc.device_id != device.id()) {
      return Status::invalid("alloc(" + std::to_string(bytes) + ") returned memory that is not on " + device.name());
    }
    auto owners = std::make_unique<Owners>();
    tensors.give_owners(owners.get());
    record->add(*owners, tensors.stream_source(), device);
    *data = desc.data;
    owner->reset(owners.release(), [](void* kept) {
      const Gil locked;
      delete static_cast<Owners*>(kept);
    });
    return {};
  } catch (nb::python_error& error) {
    error.restore();
    return python_failure();
  }
}

}  // namespace

void DropUnlocked::operator()(Program* program) const { drop(program); }
void DropUnlocked::operator()(Graph* graph) const { drop(graph); }

void adapt([[maybe_unused]] TensorDesc* desc, [[maybe_unused]] const Device& device) {
#ifdef NPU_EMULATE
  if (device.type() != DeviceType::Cuda || desc->device_type != NPU_CPU) return;
  desc->device_type = NPU_CUDA;
  desc->device_id = device.id();
#endif
}

void* stream_or_current(nb::handle stream_handle, const char* function, const DLPackExchangeAPI* source,
                        const Device& device) {
  if (void* stream = stream_argument(stream_handle, function)) return stream;
  return current_stream(source, int32_t(device.type()), device.id());
}

Program& ProgramHolder::core() const {
  if (is_in_use(planner_)) raise(Status::invalid("this program is in finalize(), which has not returned yet"));
  return alive(program_, "program");
}

void ProgramHolder::finalize(nb::handle allocator) {
  Program& program = core();
  drop_passed();
  if (!allocator.is_none() && !PyCallable_Check(allocator.ptr())) {
    raise_other_type({"finalize", "alloc"}, "a function of a number of bytes", allocator);
  }
  const Allocator allocate_arena = [&](uint64_t bytes, void** data, std::shared_ptr<void>* owner) {
    const Gil locked;
    return allocate(allocator, *program.device(), bytes, data, owner, &record_);
  };
  // Exceptions of a Python kernel that are not refusals, such as KeyboardInterrupt, are thrown through it.
  const Busy planning(planner_);
  check(without_gil([&] { return program.finalize(allocator.is_none() ? nullptr : allocate_arena); }));
}

bool ProgramHolder::is_bound_to(int slot, nb::handle tensor, const TensorDesc& desc) const {
  const auto found = owners_.find(slot);
  if (found == owners_.end() || !found->second.front().is(tensor)) return false;
  const TensorDesc& bound = core().slots()[size_t(slot)].desc;
  return is_same_tensor(bound, desc);
}

void ProgramHolder::require_free(const char* function) const {
  if (!is_in_use(caller_)) return;
  raise(Status::invalid(std::string(function) + ": this program is in use, by another thread or by a call from within: " +
                        "call() binds and runs at once; make one program per thread"));
}

void ProgramHolder::bind(int slot, nb::handle tensor, ArgName name) {
  require_free(name.function);
  bind_slot(slot, tensor, name, nullptr);
}

void ProgramHolder::fix(int slot, nb::handle tensor) {
  bind(slot, tensor, {"fix", "tensor"});
  fixed_.insert(slot);
  call_plan_ = {};
}

void ProgramHolder::bind_slot(int slot, nb::handle tensor, ArgName name, Owners* let_go) {
  Program& program = core();
  const bool is_known = slot >= 0 && size_t(slot) < program.slots().size();
  const Role role = is_known && program.slots()[size_t(slot)].is_written ? Role::Output : Role::Input;
  if (!let_go) {
    TensorArguments glance(name.function, nullptr);
    glance.add(tensor, name, role);
    adapt(glance.descs(), *program.device());
    if (is_known && is_bound_to(slot, tensor, glance.descs()[0])) return;
  }
  TensorArguments read(name.function, nullptr, let_go ? Hold::ForTheCall : Hold::Longer);
  read.add(tensor, name, role);
  adapt(read.descs(), *program.device());
  check(program.bind(slot, read.descs()[0]).at([&] { return name.text(); }));
  if (read.stream_source()) stream_source_ = read.stream_source();
  if (!let_go || read.has_own_tensors()) {
    record_.add({}, read.has_own_tensors() ? nullptr : read.stream_source(), *program.device());
  }
  Owners owners;
  read.give_owners(let_go ? let_go : &owners);
  if (!let_go) {
    owners_[slot].swap(owners);
    return keep_until_passed(record_.uses(), std::move(owners));
  }
  has_let_go_ = true;
  if (owners_.empty()) [[likely]] return;
  if (const auto bound_before = owners_.find(slot); bound_before != owners_.end()) {
    let_go->insert(let_go->end(), bound_before->second.begin(), bound_before->second.end());
    owners_.erase(bound_before);
  }
}

void ProgramHolder::require_kept(const char* function) {
  if (!has_let_go_) return;
  const auto& slots = core().slots();
  for (int slot = 0; slot < int(slots.size()); ++slot) {
    const Program::Slot& known = slots[size_t(slot)];
    if (!known.is_external || !known.is_bound || owners_.count(slot)) continue;
    raise(Status::invalid(std::string(function) + ": slot " + std::to_string(slot) + " ('" + known.name +
                          "') was bound by call(), which has let its tensor go: bind() it"));
  }
  has_let_go_ = false;
}

void ProgramHolder::run(nb::handle stream_handle, const char* function) {
  require_free(function);
  require_kept(function);
  launch(stream_handle, function, {});
}

void ProgramHolder::launch(nb::handle stream_handle, const char* function, const Owners& let_go) {
  Program& program = core();
  void* stream = stream_or_current(stream_handle, function, stream_source_, *program.device());
  if (is_captured(stream)) [[unlikely]] keep_for_capture(stream, owners(), stream_source_);
  const auto run = [&] { return program.run(stream); };
  if (call_plan().is_short) return check(run());
  check(without_gil(run));
  if (!record_.needs_mark(*program.device(), stream)) return;
  Owners used = owners();
  used.insert(used.end(), let_go.begin(), let_go.end());
  record_.note(program.device(), stream, used);
}

Owners ProgramHolder::owners() const {
  Owners all;
  for (const auto& [slot, owners] : owners_) all.insert(all.end(), owners.begin(), owners.end());
  return all;
}

int ProgramHolder::traverse(visitproc visit, void* arg) const {
  for (const auto& [slot, owners] : owners_) {
    for (const nb::object& owner : owners) Py_VISIT(owner.ptr());
  }
  return 0;
}

void ProgramHolder::clear() {
  auto program = std::move(program_);
  auto owners = std::move(owners_);
  if (program) keep_until_passed(record_.uses(), std::pair(std::move(owners), std::move(program)));
}

Graph& GraphHolder::core() const { return alive(graph_, "graph"); }

void GraphHolder::launch(int64_t count, nb::handle stream_handle) {
  Graph& graph = core();
  void* stream = stream_or_current(stream_handle, "launch", stream_source_, *graph.device());
  check(without_gil([&] { return graph.launch(stream, count); }));
  if (record_.needs_mark(*graph.device(), stream)) record_.note(graph.device(), stream, owners_);
}

void GraphHolder::update(ProgramHolder& program) {
  program.require_kept("update");
  Graph& graph = core();
  auto needs = graph.needs();
  Owners owners = program.owners();
  check(without_gil([&] { return graph.update(&program.core()); }));
  owners_.swap(owners);
  stream_source_ = program.stream_source();
  keep_until_passed(record_.uses(), std::pair(std::move(owners), std::move(needs)));
  record_.join(program.record());
}

int GraphHolder::traverse(visitproc visit, void* arg) const {
  for (const nb::object& owner : owners_) Py_VISIT(owner.ptr());
  return 0;
}

void GraphHolder::clear() {
  auto graph = std::move(graph_);
  auto owners = std::move(owners_);
  if (graph) keep_until_passed(record_.uses(), std::pair(std::move(owners), std::move(graph)));
}

}  // namespace npu::bindings
