#include <limits>

#include "bindings/bindings.h"
#include "bindings/holders.h"
#include "bindings/tensors.h"
#include "bindings/unlocked.h"

namespace npu::bindings {
namespace {

int index_argument(nb::handle value, ArgName name) {
  return int(int_argument(value, name, 0, std::numeric_limits<int32_t>::max()));
}

std::vector<int> slots_argument(nb::handle value, const char* name) {
  std::vector<int> slots;
  for (const int64_t slot : ints_argument(value, {"add", name}, 0)) {
    slots.push_back(int(std::min<int64_t>(slot, std::numeric_limits<int32_t>::max())));
  }
  return slots;
}

void make_program(ProgramHolder* self, nb::handle device_name, bool deterministic) {
  Device* device = nullptr;
  check(find_device(text_argument(device_name, {"Program", "device"}), &device));
  new (self) ProgramHolder(device, {.deterministic = deterministic});
}

int add_slot(ProgramHolder& self, const TensorSpec& spec, nb::handle name, bool external) {
  int slot = 0;
  check(self.core().add_slot(spec.desc, external, text_argument(name, {"slot", "name"}), &slot));
  return slot;
}

int add_view(ProgramHolder& self, nb::handle base, const TensorSpec& spec, nb::handle offset, nb::handle name) {
  int slot = 0;
  const int64_t bytes = int_argument(offset, {"view", "offset"}, 0, std::numeric_limits<int64_t>::max());
  check(self.core().add_view(index_argument(base, {"view", "base"}), spec.desc, uint64_t(bytes),
                             text_argument(name, {"view", "name"}), &slot));
  return slot;
}

int add_op(ProgramHolder& self, nb::handle op, nb::handle inputs, nb::handle outputs, nb::handle schema_id,
           nb::handle attrs_bytes) {
  const bool is_pinned = PyUnicode_Check(op.ptr());
  const std::string kernel_id = is_pinned ? text_argument(op, {"add", "op"}) : std::string();
  if (is_pinned && kernel_id.empty()) raise(Status::invalid("add: op is an empty text, which is no kernel id"));
  const OpKind kind = is_pinned ? OpKind{} : kind_argument(op, "add");
  const AttrsArgument attrs(schema_id, attrs_bytes, "add");
  int index = 0;
  check(self.core().add_op(kind, kernel_id, slots_argument(inputs, "inputs"), slots_argument(outputs, "outputs"),
                           attrs.blob(), &index));
  return index;
}

Cost cost_of(const Program::Op& op) { return op.kernel ? op.kernel->cost(op.call) : Cost{0, 0}; }

// Numbers where there are any, else None.
template <class Value>
nb::object value_if(bool is_known, const Value& value) {
  return is_known ? nb::cast(value) : nb::none();
}

nb::dict facts_of_slot(const Program& program, size_t index) {
  const Program::Slot& slot = program.slots()[index];
  const Program::Slot& owner = program.slots()[size_t(program.root_of(int(index)))];
  const bool in_arena = program.is_final() && slot.is_used() && !owner.is_external;
  nb::dict facts;
  facts["name"] = text_object(slot.name);
  facts["is_external"] = slot.is_external;
  facts["is_bound"] = slot.is_external && slot.is_bound;
  facts["base"] = value_if(slot.is_view(), slot.base);
  facts["base_offset"] = value_if(slot.is_view(), slot.base_offset);
  facts["dtype"] = name_of(slot.desc.dtype);
  facts["shape"] = tuple_of(slot.desc.shape, slot.desc.rank);
  facts["strides"] = tuple_of(slot.desc.strides, slot.desc.rank);
  facts["alignment"] = slot.desc.alignment;
  facts["bytes"] = span_bytes(slot.desc);
  facts["arena_offset"] = value_if(in_arena, slot.arena_offset);
  facts["first_op"] = value_if(slot.is_used(), slot.first_op);
  facts["last_op"] = value_if(slot.is_used(), slot.last_op);
  facts["tensor"] = text_of(slot.desc);
  return facts;
}

nb::dict facts_of_op(const Program::Op& op) {
  nb::list refusals;
  for (const Refusal& refusal : op.refusals) {
    nb::dict facts;
    facts["kernel_id"] = refusal.kernel_id;
    facts["reason"] = text_object(refusal.reason);
    refusals.append(facts);
  }
  const Cost cost = cost_of(op);
  nb::dict facts;
  facts["op"] = op.info->name;
  facts["kernel_id"] = op.kernel ? nb::cast(op.kernel->traits().id) : nb::none();
  facts["is_pinned"] = op.is_pinned;
  facts["inputs"] = nb::cast(op.inputs);
  facts["outputs"] = nb::cast(op.outputs);
  facts["schema_id"] = op.call.attrs.schema_id;
  facts["attr_bytes"] = op.call.attrs.bytes;
  facts["workspace_bytes"] = op.call.workspace_bytes;
  facts["workspace_offset"] = value_if(op.call.workspace_bytes > 0, op.workspace_offset);
  facts["bytes"] = cost.bytes;
  facts["flops"] = cost.flops;
  facts["refusals"] = refusals;
  return facts;
}

// What npu_cuda.description makes text of.
nb::dict facts_of(const Program& program) {
  nb::list slots, ops;
  for (size_t i = 0; i < program.slots().size(); ++i) slots.append(facts_of_slot(program, i));
  for (const Program::Op& op : program.ops()) ops.append(facts_of_op(op));
  nb::dict facts;
  facts["device"] = program.device()->name();
  facts["is_final"] = program.is_final();
  facts["arena_bytes"] = program.arena_bytes();
  facts["slots"] = slots;
  facts["ops"] = ops;
  return facts;
}

nb::object describe_program(const ProgramHolder& self, nb::handle format) {
  const std::string wanted = text_argument(format, {"describe", "format"});
  return nb::module_::import_("npu_cuda.description").attr("format_program")(facts_of(self.core()), wanted);
}

// Garbage is not collected while a graph is recorded: a tensor that dies may call a function that breaks it.
class CollectorPause {
 public:
  CollectorPause() : was_enabled_(PyGC_Disable()) {}
  ~CollectorPause() {
    if (was_enabled_) PyGC_Enable();
  }

 private:
  bool was_enabled_;
};

GraphHolder capture(ProgramHolder& self, nb::handle mode, nb::handle topology) {
  const CaptureMode captures = mode_argument(mode, "capture");
  const Topology wanted = topology_argument(topology, "capture");
  self.require_kept("capture");
  Program& program = self.core();
  Owners owners = self.owners();
  std::unique_ptr<Graph> graph;
  {
    const CollectorPause pause;
    check(without_gil([&] { return program.capture(captures, wanted, &graph); }));
  }
  return {std::move(graph), std::move(owners), self.stream_source(), self.record().without_uses()};
}

nb::list kernels_of(const ProgramHolder& self) {
  nb::list ids;
  for (const Program::Op& op : self.core().ops()) ids.append(op.kernel ? nb::cast(op.kernel->traits().id) : nb::none());
  return ids;
}

nb::tuple cost(const ProgramHolder& self) {
  double bytes = 0, flops = 0;
  for (const Program::Op& op : self.core().ops()) {
    const Cost cost = cost_of(op);
    bytes += cost.bytes;
    flops += cost.flops;
  }
  return nb::make_tuple(bytes, flops);
}

}  // namespace

void bind_programs(nb::module_& module) {
  nb::class_<ProgramHolder>(module, "Program", nb::type_slots(collected<ProgramHolder>()),
                            "A row of ops over slots, prepared once and run many times with nothing but launches.\n\n"
                            "Slots are places for tensors of a fixed description: external ones are bound to tensors\n"
                            "of the caller, the others lie in one arena. First slot() and add(), then finalize(),\n"
                            "then bind() and run(). One thread at a time; others are refused.")
      .def("__init__", &make_program, nb::arg("device") = "host", nb::arg("deterministic") = false,
           nb::sig("def __init__(self, device: str = 'host', deterministic: bool = False) -> None"),
           "Make an empty program.\n\n"
           "Args:\n"
           "    device: One that devices() names; \"cuda\" is the first one.\n"
           "    deterministic: Take only kernels that give the same bits each time.\n\n"
           "Raises:\n"
           "    UnavailableError: The device is not here; the text says why.")
      .def("slot", &add_slot, nb::arg("spec"), nb::arg("name") = "", nb::arg("external") = true,
           nb::sig("def slot(self, spec: TensorSpec, name: str = '', external: bool = True) -> int"),
           "Add a slot and return its number. One that is not external is a temporary in the arena.")
      .def("view", &add_view, nb::arg("base"), nb::arg("spec"), nb::arg("offset") = 0, nb::arg("name") = "",
           nb::sig("def view(self, base: int, spec: TensorSpec, offset: int = 0, name: str = '') -> int"),
           "Add a slot over the memory of another one and return its number.\n\n"
           "Args:\n"
           "    base: The other slot: external, a temporary, or a view itself.\n"
           "    spec: Shape and strides of the view; its alignment follows from base and offset.\n"
           "    offset: In bytes, from the first element of the base.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: It leaves the memory of its base.")
      .def("add", &add_op, nb::arg("op"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("schema_id") = 0,
           nb::arg("attrs_bytes") = nb::bytes("", 0),
           nb::sig("def add(self, op: OpKind | int | str, inputs: Sequence[int], outputs: Sequence[int], "
                   "schema_id: int = 0, attrs_bytes: Buffer = b'') -> int"),
           "Add an op and return its position.\n\n"
           "Args:\n"
           "    op: Its kind; or the id of the one kernel that is to run it.\n"
           "    inputs: Numbers of slots.\n"
           "    outputs: Numbers of slots.\n"
           "    schema_id: Of the attributes; 0, without bytes, stands for the defaults.\n"
           "    attrs_bytes: The attributes, as npu_cuda.attrs() packs them.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: Counts, slots, attributes, or a temporary that nobody has written.\n"
           "    NotSupportedError: The op is not in this build.")
      .def("finalize", [](ProgramHolder& self, nb::handle alloc) { self.finalize(alloc); }, nb::arg("alloc") = nb::none(),
           nb::sig("def finalize(self, alloc: Callable[[int], Any] | None = None) -> None"),
           "Choose kernels, plan and allocate the arena, prepare kernels. Nothing can be added after it.\n\n"
           "Args:\n"
           "    alloc: Makes the arena: alloc(nbytes) returns a contiguous tensor of at least so many bytes on the\n"
           "        device, which the program keeps. What it raises goes through. None: the device makes it.\n\n"
           "Raises:\n"
           "    NotSupportedError: An op has no kernel for its slots; the text says why.")
      .def("bind", [](ProgramHolder& self, nb::handle slot, nb::handle tensor) {
             self.bind(index_argument(slot, {"bind", "slot"}), tensor, {"bind", "tensor"});
           }, nb::arg("slot"), nb::arg("tensor"), nb::sig("def bind(self, slot: int, tensor: Any) -> None"),
           "Tie an external slot to a tensor, which the program keeps until another one is bound.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: Dtype, shape, strides, alignment or device are not those of the slot.")
      .def("fix", [](ProgramHolder& self, nb::handle slot, nb::handle tensor) {
             self.fix(index_argument(slot, {"fix", "slot"}), tensor);
           }, nb::arg("slot"), nb::arg("tensor"), nb::sig("def fix(self, slot: int, tensor: Any) -> None"),
           "bind() a tensor that stays: call() does not take one for this slot any more.")
      .def("run", [](ProgramHolder& self, nb::handle stream_handle) { self.run(stream_handle); },
           nb::arg("stream_handle") = 0, nb::sig("def run(self, stream_handle: int = 0) -> None"),
           "Launch all ops. 0 is the stream that is current in PyTorch where its tensors are bound, and the default\n"
           "stream of the device otherwise. On the stream of graph_begin() the ops are recorded.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: A slot is not bound, or another thread uses the program.")
      .def("take_launched", [](ProgramHolder& self) { return self.core().take_launched(); },
           "Return how many ops have been launched by the last run(), which may have failed; 0 without a run since the\n"
           "last time.")
      .def("call", &ProgramHolder::call, nb::arg("tensors"), nb::arg("stream_handle") = 0, nb::arg("keep") = true,
           nb::sig("def call(self, tensors: TensorList, stream_handle: int = 0, keep: bool = True) -> None"),
           "Bind all external slots but those of fix(), in the order in which they were added, and run.\n\n"
           "Args:\n"
           "    tensors: One for each of them.\n"
           "    stream_handle: As for run().\n"
           "    keep: Whether they stay bound. If not, the program lets them go, as op_call does, and run() and\n"
           "        capture() want them bound again.")
      .def("compute", &ProgramHolder::compute, nb::arg("inputs"), nb::arg("makers"), nb::arg("places") = nb::none(),
           nb::sig("def compute(self, inputs: TensorList, makers: Sequence[Callable[[], Any]], "
                   "places: Sequence[int] | None = None) -> list[Any] | None"),
           "call() on the CPU, without `keep`, into tensors that it makes and returns.\n\n"
           "Returns None, and computes nothing, where a tensor is not one of PyTorch with exactly the dtype, shape,\n"
           "strides and alignment of its slot: call() says more. Lazy changes are not asked for.\n\n"
           "Args:\n"
           "    inputs: Tensors that the caller has.\n"
           "    makers: Functions that make the other tensors.\n"
           "    places: Of each external slot, but those of fix(): its tensor, among the inputs, then the others. None:\n"
           "        in order.")
      .def("describe", &describe_program, nb::arg("format") = "text",
           nb::sig("def describe(self, format: str = 'text') -> str"),
           "Slots, ops, kernels, memory and cost, as \"text\", \"json\" or \"dot\".")
      .def("capture", &capture, nb::arg("mode") = "thread_local", nb::arg("topology") = "auto",
           nb::sig("def capture(self, mode: str = 'thread_local', topology: str = 'auto') -> Graph"),
           "Record what run() would do, without running it.\n\n"
           "Args:\n"
           "    mode: Who may disturb it: \"thread_local\", \"global\" or \"relaxed\", as in CUDA.\n"
           "    topology: \"dag\": ops that need nothing of each other may run at the same time; \"chain\": each op\n"
           "        waits for the one before; \"auto\": a chain, unless long ops could share the GPU.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: A slot is not bound, or a kernel broke the capture; the text says which.")
      .def_prop_ro("arena_bytes", [](const ProgramHolder& self) { return self.core().arena_bytes(); },
                   "Of all temporaries and workspaces; 0 before finalize().")
      .def_prop_ro("kernels", &kernels_of, nb::sig("def kernels(self) -> list[str | None]"),
                   "The ids of the kernels, one for each op; None before finalize() has chosen.")
      .def("cost", &cost, nb::sig("def cost(self) -> tuple[float, float]"),
           "Bytes that a run reads and writes, and its floating-point operations.");
}

}  // namespace npu::bindings
