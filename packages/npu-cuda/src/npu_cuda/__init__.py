"""Native kernels, programs and graphs for accelerators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_cuda._C import build_info as build_info
    from npu_cuda._C import cuda_absence as cuda_absence
    from npu_cuda._C import devices as devices
    from npu_cuda._C import empty as empty
    from npu_cuda._C import kernels as kernels
    from npu_cuda._C import kinds as kinds
    from npu_cuda._C import launch_by_id as launch_by_id
    from npu_cuda._C import libraries as libraries
    from npu_cuda._C import load_library as load_library
    from npu_cuda._C import op_call as op_call
    from npu_cuda._C import ops as ops
    from npu_cuda._C import remove_kernel as remove_kernel
    from npu_cuda._C import trace_start as trace_start
    from npu_cuda._C import trace_stop as trace_stop
    from npu_cuda.installation import Installation as Installation
    from npu_cuda.installation import get_include as get_include
    from npu_cuda.installation import status as status
    from npu_cuda.kernel_plugins import KernelPlugin as KernelPlugin
    from npu_cuda.kernel_plugins import KernelPluginWarning as KernelPluginWarning
    from npu_cuda.kernel_plugins import load_plugins as load_plugins
    from npu_cuda.python_kernels import CallSpec as CallSpec
    from npu_cuda.python_kernels import KernelCall as KernelCall
    from npu_cuda.python_kernels import kernel as kernel
    from npu_cuda.python_ops import Op as Op
    from npu_cuda.python_ops import op as op
    from npu_cuda.tracing import format_trace as format_trace
    from npu_cuda.tracing import trace as trace
    from npu_cuda.tracing import trace_events as trace_events

__version__ = "0.1.0"

# Loaded when they are first asked for: `import npu_cuda` takes a few milliseconds.
LAZY = {
    "CallSpec": "python_kernels",
    "Installation": "installation",
    "KernelCall": "python_kernels",
    "KernelPlugin": "kernel_plugins",
    "KernelPluginWarning": "kernel_plugins",
    "Op": "python_ops",
    "build_info": "_C",
    "cuda_absence": "_C",
    "devices": "_C",
    "empty": "_C",
    "format_trace": "tracing",
    "get_include": "installation",
    "kernel": "python_kernels",
    "kernels": "_C",
    "kinds": "_C",
    "launch_by_id": "_C",
    "libraries": "_C",
    "load_library": "_C",
    "load_plugins": "kernel_plugins",
    "op": "python_ops",
    "op_call": "_C",
    "ops": "_C",
    "remove_kernel": "_C",
    "status": "installation",
    "trace": "tracing",
    "trace_events": "tracing",
    "trace_start": "_C",
    "trace_stop": "_C",
}


def __getattr__(name: str) -> object:
    if name not in LAZY:
        raise AttributeError(f"module 'npu_cuda' has no attribute {name!r}")
    return getattr(import_module(f"npu_cuda.{LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
