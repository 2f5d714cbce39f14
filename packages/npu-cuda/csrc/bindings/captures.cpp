#include "bindings/captures.h"

#include "bindings/bindings.h"

namespace npu::bindings {
namespace {

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
  check(begin_capture(device, mode_argument(mode, "graph_begin"), &stream).at("graph_begin"));
  captures().push_back({device, stream, {}, nullptr});
  return reinterpret_cast<uintptr_t>(stream);
}

GraphHolder graph_end(nb::handle device_name) {
  Capture capture = take(device_name, "graph_end");
  std::unique_ptr<Graph> graph;
  check(end_capture(capture.device, &graph).at("graph_end"));
  return {std::move(graph), std::move(capture.owners), capture.stream_source};
}

void graph_abort(nb::handle device_name) {
  if (device_name.is_none() && captures().empty()) return;
  const Capture capture = take(device_name, "graph_abort");
  abort_capture(capture.device);
}

}  // namespace

bool is_captured(void* stream) { return !captures().empty() && find(stream); }

void keep_for_capture(void* stream, const Owners& owners, const DLPackExchangeAPI* source) {
  Capture* capture = find(stream);
  if (!capture) return;
  capture->owners.insert(capture->owners.end(), owners.begin(), owners.end());
  if (!capture->stream_source) capture->stream_source = source;
}

void bind_captures(nb::module_& module) {
  module.def("graph_begin", &graph_begin, nb::arg("device") = "cuda", nb::arg("mode") = "thread_local",
             nb::sig("def graph_begin(device: str = 'cuda', mode: str = 'thread_local') -> int"),
             "Begin to record single calls and return the stream to give to them, as stream_handle. Calls on it are\n"
             "recorded and not run. One capture at a time per device.");
  // The module itself holds the last graph, so that it goes with the module.
  nb::object home = nb::borrow(module);
  home.attr("_last_graph") = nb::none();
  PyObject* self = home.ptr();
  module.def("graph_end",
             [self](nb::handle device) {
               nb::object graph = nb::cast(graph_end(device));
               nb::handle(self).attr("_last_graph") = graph;
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
               const nb::object last = nb::handle(self).attr("_last_graph");
               const nb::handle chosen = graph.is_none() ? nb::handle(last) : graph;
               if (chosen.is_none()) raise(Status::invalid("graph_launch: graph_end() has made no graph yet"));
               if (!nb::isinstance<GraphHolder>(chosen)) {
                 raise_type_error(std::string("graph_launch: graph must be a Graph, not ") +
                                  nb::type_name(chosen.type()).c_str());
               }
               nb::cast<GraphHolder&>(chosen).launch(1, stream_handle);
             },
             nb::arg("graph") = nb::none(), nb::arg("stream_handle") = 0,
             nb::sig("def graph_launch(graph: Graph | None = None, stream_handle: int = 0) -> None"),
             "Run a graph once; without one, the last that graph_end() made.");
}

}  // namespace npu::bindings
