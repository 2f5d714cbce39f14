// The parts of the Python module npu_cuda._C, one function per file. module.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace npu::bindings {

namespace nb = nanobind;

void bind_specs(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_calls(nb::module_& module);
void bind_op_call(nb::module_& module);
void bind_registry(nb::module_& module);
void bind_pointwise(nb::module_& module);
void bind_chains(nb::module_& module);
void bind_python_kernels(nb::module_& module);
void bind_traces(nb::module_& module);
void bind_programs(nb::module_& module);
void bind_graphs(nb::module_& module);
void bind_step_loops(nb::module_& module);
void bind_row_loops(nb::module_& module);
void bind_streams(nb::module_& module);

}  // namespace npu::bindings
