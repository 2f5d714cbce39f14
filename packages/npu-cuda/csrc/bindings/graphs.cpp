#include "bindings/bindings.h"
#include "bindings/captures.h"
#include "bindings/collected.h"

namespace npu::bindings {
namespace {

nb::list nodes_of(const GraphHolder& self) {
  nb::list nodes;
  for (const GraphNode& node : self.core().nodes()) {
    nb::dict view;
    view["op"] = node.op;
    view["kernel_id"] = node.kernel_id;
    view["after"] = nb::cast(node.after);
    nodes.append(view);
  }
  return nodes;
}

void launch(const GraphHolder& self, nb::handle n, nb::handle stream_handle) {
  self.launch(int_argument(n, {"launch", "n"}, 0, int64_t{1} << 40), stream_handle);
}

}  // namespace

CaptureMode mode_argument(nb::handle mode, const char* function) {
  const std::string name = text_argument(mode, {function, "mode"});
  if (name == "thread_local") return CaptureMode::ThreadLocal;
  if (name == "global") return CaptureMode::Global;
  if (name == "relaxed") return CaptureMode::Relaxed;
  raise(Status::invalid(std::string(function) + ": mode is '" + name +
                        "'; possible are 'thread_local', 'global' and 'relaxed'"));
}

bool dag_argument(nb::handle topology, const char* function) {
  const std::string name = text_argument(topology, {function, "topology"});
  if (name == "dag" || name == "chain") return name == "dag";
  raise(Status::invalid(std::string(function) + ": topology is '" + name + "'; possible are 'dag' and 'chain'"));
}

void bind_graphs(nb::module_& module) {
  nb::class_<GraphHolder>(module, "Graph", nb::type_slots(collected<GraphHolder>()),
                          "Launches that were recorded, to be run again with one call. It works on the memory that was\n"
                          "bound at the capture, and keeps it. Made by Program.capture() and graph_end().")
      .def("launch", &launch, nb::arg("n") = 1, nb::arg("stream_handle") = 0,
           nb::sig("def launch(self, n: int = 1, stream_handle: int = 0) -> None"),
           "Run it n times in a row. 0 is the stream that is current in PyTorch where its tensors were bound, and\n"
           "the default stream of the device otherwise.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: The stream is being captured, or another thread uses the graph.\n"
           "    DeviceError: The launch failed.")
      .def("update", [](GraphHolder& self, ProgramHolder& program) { self.update(program); }, nb::arg("program"),
           nb::sig("def update(self, program: Program) -> None"),
           "Take the tensors that are bound to a program of the same ops and kernels. A failure changes nothing.")
      .def_prop_ro("nodes", &nodes_of, nb::sig("def nodes(self) -> list[dict[str, Any]]"),
                   "One dict per op: op, kernel_id, and after, the positions of those that it waits for.")
      .def_prop_ro("topology", [](const GraphHolder& self) { return self.core().is_dag() ? "dag" : "chain"; },
                   "\"dag\" or \"chain\".")
      .def("dot", [](const GraphHolder& self) { return self.core().dot(); }, "The nodes in the language of Graphviz.");
}

}  // namespace npu::bindings
