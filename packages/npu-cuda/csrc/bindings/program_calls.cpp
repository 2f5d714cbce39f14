// Calls of programs: external slots are bound to the tensors of a call, which the program lets go afterwards.
#include "bindings/holders.h"
#include "bindings/unlocked.h"

namespace npu::bindings {
namespace {

// Its own references to the entries: Python code that runs meanwhile may change a list.
nb::tuple entries_of(nb::handle list, ArgName name) {
  if (PyTuple_Check(list.ptr())) return nb::borrow<nb::tuple>(list);
  if (!PyList_Check(list.ptr())) raise_other_type(name, "a list or tuple", list);
  return nb::tuple(list);
}

// The tensor of each slot, by its place among the inputs, then what was made. Without places: in order.
std::vector<nb::handle> tensors_of(size_t slots, const nb::tuple& given, const nb::list& made, nb::handle places) {
  std::vector<nb::handle> all(given.begin(), given.end());
  all.insert(all.end(), made.begin(), made.end());
  std::vector<nb::handle> tensors;
  if (places.is_none()) tensors = std::move(all);
  else
    for (const int64_t place : ints_argument(places, {"compute", "places"}, 0)) {
      if (place >= int64_t(all.size())) {
        raise(Status::invalid("compute: places has " + std::to_string(place) + ", there are " +
                              std::to_string(all.size()) + " tensors"));
      }
      tensors.push_back(all[size_t(place)]);
    }
  if (tensors.size() == slots) return tensors;
  raise(Status::invalid("compute: " + std::to_string(tensors.size()) + " tensors were given, the program has " +
                        std::to_string(slots) + " external slots that are not fixed"));
}

}  // namespace

const ProgramHolder::CallPlan& ProgramHolder::call_plan() {
  const Program& program = core();
  if (call_plan_.is_complete) [[likely]] return call_plan_;
  CallPlan plan;
  plan.is_complete = program.is_final();
  for (int slot = 0; slot < int(program.slots().size()); ++slot) {
    if (program.slots()[size_t(slot)].is_external && !fixed_.count(slot)) plan.external.push_back(slot);
  }
  int64_t bytes = 0;
  for (const Program::Op& op : program.ops()) {
    for (const TensorDesc& tensor : op.tensors) bytes += nbytes(tensor);
  }
  plan.is_short = program.device()->type() == DeviceType::Host && bytes <= kBytesWorthTheGil;
  return call_plan_ = std::move(plan);
}

void ProgramHolder::bind_all(nb::handle tensors, bool keep, Owners* let_go) {
  const nb::tuple all = entries_of(tensors, {"call", "tensors"});
  const CallPlan& plan = call_plan();
  if (all.size() != plan.external.size()) {
    raise(Status::invalid("call: tensors has " + std::to_string(all.size()) + " entries, the program has " +
                          std::to_string(plan.external.size()) + " external slots" +
                          (fixed_.empty() ? "" : " that are not fixed")));
  }
  if (!keep) let_go->reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const ArgName name{"call", "tensors", int(i)};
    bind_slot(plan.external[i], all[i], name, keep ? nullptr : let_go);
  }
}

void ProgramHolder::call(nb::handle tensors, nb::handle stream_handle, bool keep) {
  require_free("call");
  // A graph that records the call needs tensors whose memory cannot be released.
  const bool is_recorded = is_captured(stream_argument(stream_handle, "run"));
  Owners let_go;
  const Busy busy(caller_);
  bind_all(tensors, keep || is_recorded, &let_go);
  has_let_go_ = !keep;  // every slot has just been bound
  launch(stream_handle, "run", let_go);
  if (keep || !is_recorded) return;
  std::map<int, Owners> owners;  // they go when no member refers to them any more
  for (const int slot : call_plan().external) owners.insert(owners_.extract(slot));
}

nb::object ProgramHolder::compute(nb::handle inputs, nb::handle makers, nb::handle places) {
  require_free("compute");
  Program& program = core();
  void* const stream = program.device()->default_stream();
  if (program.device()->type() != DeviceType::Host || is_captured(stream)) return nb::none();
  const nb::tuple given = entries_of(inputs, {"compute", "inputs"});
  const CallPlan& plan = call_plan();
  const Busy busy(caller_);
  nb::list made;
  for (const nb::handle make : entries_of(makers, {"compute", "makers"})) made.append(make());
  const std::vector<nb::handle> tensors = tensors_of(plan.external.size(), given, made, places);
  std::vector<void*> addresses;
  addresses.reserve(tensors.size());
  for (const int slot : plan.external) {
    addresses.push_back(address_as(program.slots()[size_t(slot)].desc, tensors[addresses.size()]));
    if (!addresses.back()) return nb::none();
  }
  has_let_go_ = true;
  for (const int slot : plan.external) owners_.erase(slot);
  check(program.rebind(plan.external, addresses));
  const auto run = [&] { return program.run(stream); };
  check(plan.is_short ? run() : without_gil(run));
  return made;
}

}  // namespace npu::bindings
