"""Native kernels, programs and graphs for accelerators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_cuda._C import (
        Graph,
        OpKind,
        PreparedCall,
        Program,
        Selection,
        Status,
        Tensor,
        TensorSpec,
        attr_schemas,
        build_info,
        create_stream,
        cuda_absence,
        destroy_stream,
        devices,
        empty,
        graph_abort,
        graph_begin,
        graph_end,
        graph_launch,
        kernels,
        kinds,
        launch_by_id,
        libraries,
        load_library,
        op_call,
        ops,
        pointwise_ops,
        prepare_call,
        remove_kernel,
        select,
        synchronize,
        trace_events,
        trace_start,
        trace_stop,
    )
    from npu_cuda.attributes import attrs
    from npu_cuda.backend.rules import lowering_rule
    from npu_cuda.errors import (
        DeviceError,
        InternalError,
        InvalidArgumentError,
        NotSupportedError,
        NpuCudaError,
        UnavailableError,
    )
    from npu_cuda.extension.kernel_plugins import KernelPlugin, KernelPluginWarning, load_plugins
    from npu_cuda.extension.python_kernels import CallSpec, KernelCall, kernel
    from npu_cuda.extension.python_ops import Op, find_op, op
    from npu_cuda.installation import Installation, get_include, status
    from npu_cuda.launch_trace import format_trace, trace

__version__ = "0.1.0"

__all__ = [
    "CallSpec",
    "DeviceError",
    "Graph",
    "Installation",
    "InternalError",
    "InvalidArgumentError",
    "KernelCall",
    "KernelPlugin",
    "KernelPluginWarning",
    "NotSupportedError",
    "NpuCudaError",
    "Op",
    "OpKind",
    "PreparedCall",
    "Program",
    "Selection",
    "Status",
    "Tensor",
    "TensorSpec",
    "UnavailableError",
    "__version__",
    "attr_schemas",
    "attrs",
    "build_info",
    "create_stream",
    "cuda_absence",
    "destroy_stream",
    "devices",
    "empty",
    "find_op",
    "format_trace",
    "get_include",
    "graph_abort",
    "graph_begin",
    "graph_end",
    "graph_launch",
    "kernel",
    "kernels",
    "kinds",
    "launch_by_id",
    "libraries",
    "load_library",
    "load_plugins",
    "lowering_rule",
    "op",
    "op_call",
    "ops",
    "pointwise_ops",
    "prepare_call",
    "remove_kernel",
    "select",
    "status",
    "synchronize",
    "trace",
    "trace_events",
    "trace_start",
    "trace_stop",
]

# Loaded on first access: `import npu_cuda` takes a few milliseconds. Names by their module.
_NAMES = {
    "_C": (
        "Graph OpKind PreparedCall Program Selection Status Tensor TensorSpec attr_schemas build_info "
        "create_stream cuda_absence destroy_stream devices empty graph_abort graph_begin graph_end "
        "graph_launch kernels kinds launch_by_id libraries load_library op_call ops pointwise_ops "
        "prepare_call remove_kernel select synchronize trace_events trace_start trace_stop"
    ),
    "attributes": "attrs",
    "backend.rules": "lowering_rule",
    "errors": (
        "DeviceError InternalError InvalidArgumentError NotSupportedError NpuCudaError UnavailableError"
    ),
    "extension.kernel_plugins": "KernelPlugin KernelPluginWarning load_plugins",
    "extension.python_kernels": "CallSpec KernelCall kernel",
    "extension.python_ops": "Op find_op op",
    "installation": "Installation get_include status",
    "launch_trace": "format_trace trace",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
