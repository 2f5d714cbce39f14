// Graphs, and captures of single calls, which make one of them.
#include "bindings/bindings.h"
#include "bindings/holders.h"
#include "bindings/unlocked.h"

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

void launch(GraphHolder& self, nb::handle n, nb::handle stream_handle) {
  self.launch(int_argument(n, {"launch", "n"}, 0, int64_t{1} << 40), stream_handle);
}

// What is being captured by graph_begin(). The GIL guards it.
struct Capture {
  Device* device;
  void* stream;
  Owners owners;
  const DLPackExchangeAPI* stream_source = nullptr;  // of the first call that has one
};

std::vector<Capture>& captures() {
  static auto* all = new std::vector<Capture>();  // outlives every user
  return *all;
}

Capture* find(void* stream) {
  for (Capture& capture : captures()) {
    if (capture.stream == stream) return &capture;
  }
  return nullptr;
}

// The capture that a call without a device means: the only one.
size_t choose(nb::handle device_name, const char* function) {
  const bool any = device_name.is_none();
  const std::string wanted = any ? std::string() : text_argument(device_name, {function, "device"});
  Device* device = nullptr;
  if (!any) check(find_device(wanted, &device));
  if (any && captures().size() > 1) {
    raise(Status::invalid(std::string(function) + ": several devices capture; say which: device='" +
                          captures()[0].device->name() + "'"));
  }
  for (size_t i = 0; i < captures().size(); ++i) {
    if (any || captures()[i].device == device) return i;
  }
  raise(Status::invalid(std::string(function) + ": no graph is being captured" + (any ? "" : " on " + wanted) +
                        ": call graph_begin() first"));
}

Capture take(nb::handle device_name, const char* function) {
  const size_t index = choose(device_name, function);
  Capture capture = std::move(captures()[index]);
  captures().erase(captures().begin() + std::ptrdiff_t(index));
  return capture;
}

uintptr_t graph_begin(nb::handle device_name, nb::handle mode) {
  Device* device = nullptr;
  check(find_device(text_argument(device_name, {"graph_begin", "device"}), &device));
  void* stream = nullptr;
  const CaptureMode wanted = mode_argument(mode, "graph_begin");
  check(without_gil([&] { return begin_capture(device, wanted, &stream); }).at("graph_begin"));
  captures().push_back({device, stream, {}, nullptr});
  return reinterpret_cast<uintptr_t>(stream);
}

GraphHolder graph_end(nb::handle device_name) {
  Capture capture = take(device_name, "graph_end");
  std::unique_ptr<Graph> graph;
  check(without_gil([&] { return end_capture(capture.device, &graph); }).at("graph_end"));
  LaunchRecord record;
  record.add(capture.owners, capture.stream_source, *capture.device);
  return {std::move(graph), std::move(capture.owners), capture.stream_source, std::move(record)};
}

void graph_abort(nb::handle device_name) {
  if (device_name.is_none() && captures().empty()) return;
  const Capture capture = take(device_name, "graph_abort");
  without_gil([&] { abort_capture(capture.device); });
}

// The graph that the weak reference is to, where no other is given.
nb::object last_graph(nb::handle reference, nb::handle given) {
  if (!given.is_none()) return nb::none();
  if (reference.is_none()) raise(Status::invalid("graph_launch: graph_end() has made no graph yet"));
  nb::object last = reference();
  if (last.is_none()) {
    raise(Status::invalid("graph_launch: the last graph of graph_end() is gone: keep it as long as it is "
                          "launched"));
  }
  return last;
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

Topology topology_argument(nb::handle topology, const char* function) {
  const std::string name = text_argument(topology, {function, "topology"});
  if (name == "auto") return Topology::Auto;
  if (name == "dag") return Topology::Dag;
  if (name == "chain") return Topology::Chain;
  raise(Status::invalid(std::string(function) + ": topology is '" + name +
                        "'; possible are 'auto', 'dag' and 'chain'"));
}

void bind_graphs(nb::module_& module) {
  nb::class_<GraphHolder>(module, "Graph", nb::type_slots(collected<GraphHolder>()), nb::is_weak_referenceable(),
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
      .def("dot", [](const GraphHolder& self) {
             return nb::module_::import_("npu_cuda.description").attr("draw_graph")(nodes_of(self));
           }, nb::sig("def dot(self) -> str"), "The nodes in the language of Graphviz.");
  module.def("graph_begin", &graph_begin, nb::arg("device") = "cuda", nb::arg("mode") = "thread_local",
             nb::sig("def graph_begin(device: str = 'cuda', mode: str = 'thread_local') -> int"),
             "Begin to record single calls and return the stream to give to them, as stream_handle. Calls on it are\n"
             "recorded and not run. One capture at a time per device.");
  // The module itself holds a reference to the last graph, so that it goes with the module.
  nb::object home = nb::borrow(module);
  home.attr("_last_graph") = nb::none();
  PyObject* self = home.ptr();
  module.def("graph_end",
             [self](nb::handle device) {
               nb::object graph = nb::cast(graph_end(device));
               nb::handle(self).attr("_last_graph") = nb::weakref(graph);
               return graph;
             },
             nb::arg("device") = nb::none(), nb::sig("def graph_end(device: str | None = None) -> Graph"),
             "End the capture and return its graph, which keeps the tensors of all calls.\n\n"
             "Raises:\n"
             "    InvalidArgumentError: Nothing is being captured; or a call broke the capture, and the text says\n"
             "        which and how. Then the next capture can begin.");
  module.def("graph_abort", &graph_abort, nb::arg("device") = nb::none(),
             nb::sig("def graph_abort(device: str | None = None) -> None"),
             "Throw away what is being captured. Without a capture it does nothing, so that it fits a finally.");
  module.def("graph_launch",
             [self](nb::handle graph, nb::handle stream_handle) {
               const nb::object last = last_graph(nb::handle(self).attr("_last_graph"), graph);
               const nb::handle chosen = graph.is_none() ? nb::handle(last) : graph;
               if (!nb::isinstance<GraphHolder>(chosen)) raise_other_type({"graph_launch", "graph"}, "a Graph", chosen);
               nb::cast<GraphHolder&>(chosen).launch(1, stream_handle);
             },
             nb::arg("graph") = nb::none(), nb::arg("stream_handle") = 0,
             nb::sig("def graph_launch(graph: Graph | None = None, stream_handle: int = 0) -> None"),
             "Run a graph once; without one, the last that graph_end() made, which the caller keeps.\n\n"
             "Raises:\n"
             "    InvalidArgumentError: There is no such graph, or nobody has kept it.");
}

bool is_captured(void* stream) { return !captures().empty() && find(stream); }

void keep_for_capture(void* stream, const Owners& owners, const DLPackExchangeAPI* source) {
  Capture* capture = find(stream);
  if (!capture) return;
  capture->owners.insert(capture->owners.end(), owners.begin(), owners.end());
  if (!capture->stream_source) capture->stream_source = source;
}

}  // namespace npu::bindings
