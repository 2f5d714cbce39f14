#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "core/trace.h"

namespace npu::bindings {
namespace {

constexpr int64_t kMostLaunches = 1 << 24;

void start(int64_t capacity, bool nvtx) {
  if (capacity < 1 || capacity > kMostLaunches) {
    raise(Status::invalid("trace_start: a capacity of " + std::to_string(capacity) + " launches; 1 to " +
                          std::to_string(kMostLaunches) + " are possible"));
  }
  check(trace_start(size_t(capacity), nvtx).at("trace_start"));
}

nb::dict dict_of(const TraceEvent& event) {
  nb::dict dict;
  dict["number"] = event.number;
  dict["start_ns"] = event.start_ns;
  dict["duration_ns"] = event.duration_ns;
  dict["kind"] = static_cast<int32_t>(event.kind);
  dict["op"] = event.op;
  dict["kernel_id"] = event.kernel_id;
  dict["tensors"] = event.tensors;
  dict["stream"] = event.stream;
  dict["status"] = name_of(event.status);
  return dict;
}

nb::list events() {
  nb::list list;
  for (const TraceEvent& event : trace_events()) list.append(dict_of(event));
  return list;
}

}  // namespace

void bind_traces(nb::module_& module) {
  module.def("trace_start", &start, nb::arg("capacity") = 4096, nb::arg("nvtx") = false,
             nb::sig("def trace_start(capacity: int = 4096, nvtx: bool = False) -> None"),
             "Write down launches from here on, the last `capacity` of them; with `nvtx` also as ranges for profilers.");
  module.def("trace_stop", &trace_stop, "Write down no further launches. Those that are there stay.");
  module.def("trace_events", &events, nb::sig("def trace_events() -> list[dict[str, Any]]"),
             "The launches since trace_start that the ring buffer still holds, oldest first. Each is a dict: number\n"
             "(counts dropped launches, too), start_ns, duration_ns (on the host: of the launch, not of the device's\n"
             "work), kind, op, kernel_id, tensors, stream and status.");
}

}  // namespace npu::bindings
