// The table of pointwise ops as Python sees it, and the number of threads of host kernels.
#include "bindings/bindings.h"
#include "ops/host_simd.h"
#include "ops/pointwise/host_bytes.h"
#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::bindings {
namespace {

nb::str text(std::string_view view) { return nb::str(view.data(), view.size()); }

nb::list instructions_of(const pointwise::Recording& recording) {
  nb::list all;
  for (const pointwise::Instruction& each : recording.instructions) {
    nb::list operands;
    for (const int operand : each.operands) operands.append(operand);
    all.append(nb::make_tuple(text(each.name), nb::tuple(operands), each.constant));
  }
  return all;
}

nb::list classes_of(const pointwise::Row& row) {
  nb::list all;
  for (const auto type : {pointwise::kFloat32, pointwise::kFloat64, pointwise::kInt64}) {
    if (row.classes & type) all.append(text(pointwise::class_name(type)));
  }
  return all;
}

nb::list names_list(std::string_view parameters) {
  nb::list names;
  for (const std::string& name : pointwise::names_of(parameters)) names.append(text(name));
  return names;
}

nb::dict view_of(const pointwise::Description& op) {
  nb::dict view;
  view["name"] = text(op.row.name);
  view["kind"] = int(op.row.kind);
  view["inputs"] = names_list(op.row.inputs);
  view["outputs"] = names_list(op.row.outputs);
  view["computed_in"] = classes_of(op.row);
  view["schema"] = op.schema ? nb::object(text(op.schema->name)) : nb::none();
  view["expression"] = text(op.row.text);
  view["flops"] = op.recording.flops();
  view["by_bytes"] = pointwise::launch_of_bytes(op.row.kind) != nullptr;
  view["instructions"] = instructions_of(op.recording);
  return view;
}

nb::list pointwise_ops() {
  nb::list all;
  for (const pointwise::Description& op : pointwise::descriptions()) all.append(view_of(op));
  return all;
}

}  // namespace

void bind_pointwise(nb::module_& module) {
  module.def("pointwise_ops", &pointwise_ops, nb::sig("def pointwise_ops() -> list[dict[str, Any]]"),
             "The rows of the table of pointwise ops: name, kind, inputs and outputs (their names), computed_in (the\n"
             "number types), schema (of the attributes, or None), expression (its text), flops of an element,\n"
             "by_bytes (whether the host computes bools, int8 and uint8 as bytes), and instructions (tuples of name, operands\n"
             "and constant) with the default attributes.");
  module.def("thread_count", &thread_count, "Return the most threads that one call of a host kernel uses.");
  module.def("set_thread_count", &set_thread_count, nb::arg("count"),
             "Set the most threads that one call of a host kernel uses; results do not depend on it. At first it is\n"
             "OMP_NUM_THREADS, or the number of processors.");
  most_vector_bytes();  // throws where the variable is wrong
  module.def("vector_bytes", &vector_bytes,
             "Return the bytes of the vectors that host kernels compute with: 64, 32 or 16.\n"
             "NPU_CUDA_VECTOR_BYTES limits them.");
}

}  // namespace npu::bindings
