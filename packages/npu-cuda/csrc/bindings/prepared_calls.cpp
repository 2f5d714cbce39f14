#include <cstring>

#include "bindings/bindings.h"
#include "bindings/captures.h"
#include "bindings/collected.h"
#include "core/call_checks.h"

namespace npu::bindings {
namespace {

// One op with its tensors, as a program of one op: checked and prepared once, launched many times.
class PreparedCall {
 public:
  PreparedCall(std::unique_ptr<Program> program, Owners owners, const DLPackExchangeAPI* stream_source)
      : program_(std::move(program)), owners_(std::move(owners)), stream_source_(stream_source) {}

  const Program& core() const {
    if (!program_) raise(Status::invalid("this call is being destroyed by the garbage collector"));
    return *program_;
  }

  void launch(nb::handle stream_handle) const {
    core();
    void* stream = stream_or_current(stream_handle, "PreparedCall", stream_source_, *program_->device());
    if (is_captured(stream)) [[unlikely]] keep_for_capture(stream, owners_, stream_source_);
    check(program_->run(stream));
  }

  int traverse(visitproc visit, void* arg) const {
    for (const nb::object& owner : owners_) Py_VISIT(owner.ptr());
    return 0;
  }

  void clear() {
    const std::unique_ptr<Program> program = std::move(program_);
    const Owners owners = std::move(owners_);
  }

 private:
  std::unique_ptr<Program> program_;
  Owners owners_;
  const DLPackExchangeAPI* stream_source_;
};

// The slot of this tensor: one that is both input and output has one slot.
int slot_of(Program& program, std::vector<TensorDesc>& known, const TensorDesc& desc) {
  for (size_t i = 0; i < known.size(); ++i) {
    const TensorDesc& other = known[i];
    if (desc.data && other.data == desc.data && other.dtype == desc.dtype && same_shape(other, desc) &&
        std::equal(desc.strides, desc.strides + desc.rank, other.strides)) {
      return int(i);
    }
  }
  int slot = 0;
  TensorDesc promised = desc;
  check(program.add_slot(promised, true, "", &slot));
  known.push_back(desc);
  return slot;
}

PreparedCall prepare_call(nb::handle kind, nb::handle inputs, nb::handle outputs, nb::handle schema_id,
                          nb::handle attrs_bytes) {
  constexpr const char* kName = "prepare_call";
  const OpKind op = kind_argument(kind, kName);
  const AttrsArgument attrs(schema_id, attrs_bytes, kName);
  TensorArguments tensors(kName, nullptr, Hold::Longer);
  const int num_inputs = tensors.add_all(inputs, "inputs", Role::Input, kMaxInputs);
  tensors.add_all(outputs, "outputs", Role::Output, kMaxOutputs);
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

void bind_prepared_calls(nb::module_& module) {
  nb::class_<PreparedCall>(module, "PreparedCall", nb::type_slots(collected<PreparedCall>()),
                           "A call of prepare_call(): launches its op again and again on the same tensors.")
      .def("__call__", &PreparedCall::launch, nb::arg("stream_handle") = 0,
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
