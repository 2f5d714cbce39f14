// The Python module npu_cuda._C.
#include <stdexcept>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/emulation.h"
#include "bindings/installation.h"

NB_MODULE(_C, module) {
  using namespace npu::bindings;
  static bool is_loaded = false;  // nanobind registers types once
  if (std::exchange(is_loaded, true)) {
    throw std::runtime_error("npu_cuda._C is loaded already, and cannot be imported a second time: keep it in sys.modules");
  }
  module.doc() = "The native part of npu_cuda: ops, programs and graphs of the devices of this machine.";
  bind_enums(module);
  bind_specs(module);
  bind_tensor(module);
  bind_calls(module);
  bind_registry_views(module);
  bind_libraries(module);
  bind_python_kernels(module);
  bind_python_ops(module);
  bind_traces(module);
  bind_graphs(module);
  bind_programs(module);
  bind_captures(module);
  bind_selections(module);
  bind_prepared_calls(module);
  bind_streams(module);
  bind_installation(module);
  bind_emulation(module);
}
