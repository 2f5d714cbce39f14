"""npu-runtime: fast execution of npu-ir graphs, on the CPU and on any backend."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend, BackendOp, Captured, Temporary
from npu_runtime.errors import CaptureError, FallbackWarning, TracingError

if TYPE_CHECKING:
    from npu_runtime.codegen.live_ranges import MemoryPlan
    from npu_runtime.diagnostics.compare import Comparison, after_pass, compare, float64
    from npu_runtime.diagnostics.explain import Explanation, explain, explain_graph
    from npu_runtime.diagnostics.profile import Profile, profile
    from npu_runtime.executor.executor import IRExecutor
    from npu_runtime.executor.node_by_node import Run
    from npu_runtime.interop.exported_program import to_exported_program, to_torch
    from npu_runtime.lowering.lowered_graph import Lowered, LoweredOp, lower_to_backend_ops
    from npu_runtime.training.capture.buffer_pool import BufferPool, BufferStats
    from npu_runtime.training.capture.capture_state import in_capture
    from npu_runtime.training.capture.warmup import warmup_capture_safe
    from npu_runtime.training.checks.capture_check import check_capture
    from npu_runtime.training.checks.replay_check import check_replay
    from npu_runtime.training.checks.violations import CaptureReport, Violation
    from npu_runtime.training.compile import CompileArtifact, compile_and_capture, get_artifact
    from npu_runtime.training.dumps.call_log import Call, CallLog
    from npu_runtime.training.trace import compile_ir
    from npu_runtime.training.train_step import TrainStep

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendError",
    "BackendOp",
    "BufferPool",
    "BufferStats",
    "Call",
    "CallLog",
    "CaptureError",
    "CaptureReport",
    "Captured",
    "Comparison",
    "CompileArtifact",
    "Explanation",
    "FallbackWarning",
    "IRExecutor",
    "Lowered",
    "LoweredOp",
    "MemoryPlan",
    "Profile",
    "Run",
    "Temporary",
    "TracingError",
    "TrainStep",
    "Violation",
    "__version__",
    "after_pass",
    "check_capture",
    "check_replay",
    "compare",
    "compile_and_capture",
    "compile_ir",
    "explain",
    "explain_graph",
    "float64",
    "get_artifact",
    "in_capture",
    "lower_to_backend_ops",
    "profile",
    "to_exported_program",
    "to_torch",
    "warmup_capture_safe",
]

# Imported lazily: every `npu` command imports this package to find its plugins.
_MODULES = {
    **dict.fromkeys(("Comparison", "after_pass", "compare", "float64"), "diagnostics.compare"),
    **dict.fromkeys(("Explanation", "explain", "explain_graph"), "diagnostics.explain"),
    **dict.fromkeys(("Profile", "profile"), "diagnostics.profile"),
    **dict.fromkeys(("to_exported_program", "to_torch"), "interop.exported_program"),
    **dict.fromkeys(("CompileArtifact", "compile_and_capture", "get_artifact"), "training.compile"),
    **dict.fromkeys(("CaptureReport", "Violation"), "training.checks.violations"),
    "check_capture": "training.checks.capture_check",
    "check_replay": "training.checks.replay_check",
    **dict.fromkeys(("BufferPool", "BufferStats"), "training.capture.buffer_pool"),
    **dict.fromkeys(("Lowered", "LoweredOp", "lower_to_backend_ops"), "lowering.lowered_graph"),
    **dict.fromkeys(("Call", "Trace"), "training.dumps.call_log"),
    "in_capture": "training.capture.capture_state",
    "warmup_capture_safe": "training.capture.warmup",
    "TrainStep": "training",
    "compile_ir": "training",
    "IRExecutor": "executor.executor",
    "MemoryPlan": "codegen.live_ranges",
    "Run": "executor.node_by_node",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
