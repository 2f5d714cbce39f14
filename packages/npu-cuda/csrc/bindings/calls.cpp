#include <cstring>

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/holders.h"
#include "bindings/tensors.h"
#include "bindings/unlocked.h"
#include "core/dispatch.h"
#include "core/op_info.h"

namespace npu::bindings {
namespace {

// Whether other threads of Python should run meanwhile. A launch on cuda waits where the queue of the stream is full: for
// work that may need the GIL. `memo`: of such tensors, or null.
bool is_long(const OpCall& call, const CallMemo* memo) {
  if (call.num_outputs == 0) return false;
  if (call.outputs[0].device_type != NPU_CPU) return true;
  if (memo) return memo->bytes > kBytesWorthTheGil;
  int64_t bytes = 0;
  for (int i = 0; i < call.num_inputs; ++i) bytes += nbytes(call.inputs[i]);
  for (int i = 0; i < call.num_outputs; ++i) bytes += nbytes(call.outputs[i]);
  return bytes > kBytesWorthTheGil;
}

// Runs a call; a graph that records it keeps its tensors. `run` also gets whether the tensors are like those of the memo,
// which may be null.
template <class Run>
void run_call(const char* function, const CallArguments& given, const CallMemo* memo, Run run) {
  const AttrsArgument attrs(given.schema_id, given.attrs_bytes, function);
  void* stream = given.stream_handle.is_valid() ? stream_argument(given.stream_handle, function) : nullptr;
  TensorArguments tensors(function, stream, is_captured(stream) ? Hold::Longer : Hold::ForTheCall);
  if (memo) tensors.expect(*memo);
  OpCall call{};
  call.struct_size = sizeof(OpCall);
  call.num_inputs = tensors.add_all(given.inputs, "inputs", Role::Input);
  call.num_outputs = tensors.add_all(given.outputs, "outputs", Role::Output);
  call.inputs = tensors.descs();
  call.outputs = tensors.descs() + call.num_inputs;
  call.attrs = attrs.blob();
  call.stream = tensors.stream();
  const bool is_like_memo = tensors.are_expected();
  const bool releases_gil = is_long(call, is_like_memo ? memo : nullptr);
  check(releases_gil ? without_gil([&] { return run(call, is_like_memo); }) : run(call, is_like_memo));
  if (tensors.has_own_tensors() && call.outputs[0].device_type != NPU_CPU) tensors.note_use(call.stream);
  if (!is_captured(call.stream)) [[likely]] return;
  Owners owners;
  tensors.give_owners(&owners);
  keep_for_capture(call.stream, owners, tensors.stream_source());
}

void launch_kernel(nb::handle kernel_id, nb::handle inputs, nb::handle outputs, nb::handle schema_id,
                   nb::handle attrs_bytes, nb::handle stream_handle) {
  const std::string id = text_argument(kernel_id, {"launch_by_id", "kernel_id"});
  run_call("launch_by_id", {inputs, outputs, schema_id, attrs_bytes, stream_handle}, nullptr,
           [&](const OpCall& call, bool) { return launch_by_id(id, call); });
}

// One op with its tensors, as a program of one op: checked and prepared once, launched many times.
struct PreparedCall : ProgramHolder {
  using ProgramHolder::ProgramHolder;
};

// The slot of this tensor: one that is both input and output has one slot.
int slot_of(Program& program, std::vector<TensorDesc>& known, const TensorDesc& desc) {
  for (size_t i = 0; i < known.size(); ++i) {
    if (desc.data && is_same_tensor(known[i], desc)) return int(i);
  }
  int slot = 0;
  check(program.add_slot(desc, true, "", &slot));
  known.push_back(desc);
  return slot;
}

PreparedCall prepare_call(nb::handle kind, nb::handle inputs, nb::handle outputs, nb::handle schema_id,
                          nb::handle attrs_bytes) {
  constexpr const char* kName = "prepare_call";
  const OpKind op = kind_argument(kind, kName);
  const AttrsArgument attrs(schema_id, attrs_bytes, kName);
  TensorArguments tensors(kName, nullptr, Hold::Longer);
  const int num_inputs = tensors.add_all(inputs, "inputs", Role::Input);
  tensors.add_all(outputs, "outputs", Role::Output);
  const TensorDesc* first = tensors.descs();
  Device* device = nullptr;
  const bool is_empty = tensors.count() == 0;
  check(find_device(DeviceType(is_empty ? int32_t{NPU_CPU} : first->device_type), is_empty ? 0 : first->device_id,
                    &device));
  auto program = std::make_unique<Program>(device);
  std::vector<TensorDesc> known;
  std::vector<int> slots[2];
  for (int i = 0; i < tensors.count(); ++i) {
    if (tensors.descs()[i].device_type != first->device_type || tensors.descs()[i].device_id != first->device_id) {
      raise(Status::invalid("prepare_call: all tensors of a call are on one device"));
    }
    slots[i < num_inputs ? 0 : 1].push_back(slot_of(*program, known, tensors.descs()[i]));
  }
  int index = 0;
  check(program->add_op(op, "", slots[0], slots[1], attrs.blob(), &index).at([] { return std::string(kName); }));
  check(program->finalize().at([] { return std::string(kName); }));
  for (size_t i = 0; i < known.size(); ++i) check(program->bind(int(i), known[i]));
  Owners owners;
  tensors.give_owners(&owners);
  return {std::move(program), std::move(owners), tensors.stream_source()};
}

}  // namespace

void call_op(nb::handle kind, const CallArguments& given) {
  const OpKind op = kind_argument(kind, "op_call");
  const CallMemo& memo = memo_of(op);
  run_call("op_call", given, &memo, [&](const OpCall& call, bool is_like_memo) {
    return is_like_memo ? dispatch_again(memo, op, call) : dispatch(op, call);
  });
}

void bind_calls(nb::module_& module) {
  bind_op_call(module);
  module.def("launch_by_id", &launch_kernel, nb::arg("kernel_id").none(), nb::arg("inputs").none(), nb::arg("outputs").none(),
             nb::arg("schema_id").none() = 0, nb::arg("attrs_bytes").none() = nb::bytes("", 0), nb::arg("stream_handle").none() = 0,
             nb::sig("def launch_by_id(kernel_id: str, inputs: TensorList, outputs: TensorList, schema_id: int = 0, "
                     "attrs_bytes: Buffer = b'', stream_handle: int = 0) -> None"),
             "Run one kernel. As op_call, but tensors that the kernel does not take are an InvalidArgumentError:\n"
             "who names a kernel says that it fits.");
  nb::class_<PreparedCall>(module, "PreparedCall", nb::type_slots(collected<PreparedCall>()),
                           "A call of prepare_call(): launches its op again and again on the same tensors.")
      .def("__call__", [](PreparedCall& self, nb::handle stream_handle) { self.run(stream_handle, "PreparedCall"); },
           nb::arg("stream_handle") = 0,
           nb::sig("def __call__(self, stream_handle: int = 0) -> None"),
           "Launch it. One thread at a time; the stream is chosen as by op_call.")
      .def_prop_ro("kernel_id", [](const PreparedCall& self) { return self.core().ops()[0].kernel->traits().id; },
                   "The kernel that was chosen.");
  module.def("prepare_call", &prepare_call, nb::arg("kind"), nb::arg("inputs"), nb::arg("outputs"),
             nb::arg("schema_id") = 0, nb::arg("attrs_bytes") = nb::bytes("", 0),
             nb::sig("def prepare_call(kind: OpKind | int, inputs: TensorList, outputs: TensorList, schema_id: int = 0, "
                     "attrs_bytes: Buffer = b'') -> PreparedCall"),
             "Choose and prepare the kernel for a call that will be made many times. It keeps the tensors.\n\n"
             "Arguments and errors are those of op_call; the stream is given to each launch.");
}

}  // namespace npu::bindings
