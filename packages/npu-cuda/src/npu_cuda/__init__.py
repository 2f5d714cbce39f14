"""Native kernels, programs and graphs for accelerators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_cuda._C import Graph as Graph
    from npu_cuda._C import OpKind as OpKind
    from npu_cuda._C import PreparedCall as PreparedCall
    from npu_cuda._C import Program as Program
    from npu_cuda._C import Selection as Selection
    from npu_cuda._C import Status as Status
    from npu_cuda._C import Tensor as Tensor
    from npu_cuda._C import TensorSpec as TensorSpec
    from npu_cuda._C import attr_schemas as attr_schemas
    from npu_cuda._C import build_info as build_info
    from npu_cuda._C import create_stream as create_stream
    from npu_cuda._C import cuda_absence as cuda_absence
    from npu_cuda._C import destroy_stream as destroy_stream
    from npu_cuda._C import devices as devices
    from npu_cuda._C import empty as empty
    from npu_cuda._C import graph_abort as graph_abort
    from npu_cuda._C import graph_begin as graph_begin
    from npu_cuda._C import graph_end as graph_end
    from npu_cuda._C import graph_launch as graph_launch
    from npu_cuda._C import kernels as kernels
    from npu_cuda._C import kinds as kinds
    from npu_cuda._C import launch_by_id as launch_by_id
    from npu_cuda._C import libraries as libraries
    from npu_cuda._C import load_library as load_library
    from npu_cuda._C import op_call as op_call
    from npu_cuda._C import ops as ops
    from npu_cuda._C import pointwise_ops as pointwise_ops
    from npu_cuda._C import prepare_call as prepare_call
    from npu_cuda._C import remove_kernel as remove_kernel
    from npu_cuda._C import select as select
    from npu_cuda._C import synchronize as synchronize
    from npu_cuda._C import trace_events as trace_events
    from npu_cuda._C import trace_start as trace_start
    from npu_cuda._C import trace_stop as trace_stop
    from npu_cuda.attributes import attrs as attrs
    from npu_cuda.backend.rules import lowering_rule as lowering_rule
    from npu_cuda.errors import DeviceError as DeviceError
    from npu_cuda.errors import InternalError as InternalError
    from npu_cuda.errors import InvalidArgumentError as InvalidArgumentError
    from npu_cuda.errors import NotSupportedError as NotSupportedError
    from npu_cuda.errors import NpuCudaError as NpuCudaError
    from npu_cuda.errors import UnavailableError as UnavailableError
    from npu_cuda.extension.kernel_plugins import KernelPlugin as KernelPlugin
    from npu_cuda.extension.kernel_plugins import KernelPluginWarning as KernelPluginWarning
    from npu_cuda.extension.kernel_plugins import load_plugins as load_plugins
    from npu_cuda.extension.python_kernels import CallSpec as CallSpec
    from npu_cuda.extension.python_kernels import KernelCall as KernelCall
    from npu_cuda.extension.python_kernels import kernel as kernel
    from npu_cuda.extension.python_ops import Op as Op
    from npu_cuda.extension.python_ops import find_op as find_op
    from npu_cuda.extension.python_ops import op as op
    from npu_cuda.installation import Installation as Installation
    from npu_cuda.installation import get_include as get_include
    from npu_cuda.installation import status as status
    from npu_cuda.launch_trace import format_trace as format_trace
    from npu_cuda.launch_trace import trace as trace

__version__ = "0.1.0"

# Loaded on first access: `import npu_cuda` takes a few milliseconds. Names by their module.
NAMES = {
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
LAZY = {name: module for module, names in NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in LAZY:
        raise AttributeError(f"module 'npu_cuda' has no attribute {name!r}")
    return getattr(import_module(f"npu_cuda.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
