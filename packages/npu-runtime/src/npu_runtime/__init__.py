"""npu-runtime: fast execution of npu-ir graphs, on the CPU and on any backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_ir.core.lazy_names import lazy_names
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend, BackendOp
from npu_runtime.errors import CacheWarning, CaptureError, FallbackWarning, GenerationWarning, TracingError

if TYPE_CHECKING:
    from npu_runtime.decoders.decoder import Decoder
    from npu_runtime.decoders.extract import DecoderGraphs, extract_decoder
    from npu_runtime.decoders.sampler import Sampling
    from npu_runtime.diagnostics.compare import after_pass, float64
    from npu_runtime.diagnostics.compare.compare import compare
    from npu_runtime.diagnostics.explain import explain, explain_graph
    from npu_runtime.diagnostics.profile import profile
    from npu_runtime.diagnostics.tune import tune
    from npu_runtime.executor.executor import IRExecutor
    from npu_runtime.interop.exported_program import to_exported_program, to_torch
    from npu_runtime.training.checks.capture_check import check_capture
    from npu_runtime.training.compile import CompileArtifact, compile_and_capture, get_artifact
    from npu_runtime.training.replay_check import check_replay
    from npu_runtime.training.trace import compile_ir
    from npu_runtime.training.train_step import TrainStep

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendError",
    "BackendOp",
    "CacheWarning",
    "CaptureError",
    "CompileArtifact",
    "Decoder",
    "DecoderGraphs",
    "FallbackWarning",
    "GenerationWarning",
    "IRExecutor",
    "Sampling",
    "TracingError",
    "TrainStep",
    "__version__",
    "after_pass",
    "check_capture",
    "check_replay",
    "compare",
    "compile_and_capture",
    "compile_ir",
    "explain",
    "explain_graph",
    "extract_decoder",
    "float64",
    "get_artifact",
    "profile",
    "to_exported_program",
    "to_torch",
    "tune",
]

# Imported lazily: every `npu` command imports this package to find its plugins.
_MODULES = {
    "Decoder": ".decoders.decoder",
    **dict.fromkeys(("DecoderGraphs", "extract_decoder"), ".decoders.extract"),
    "Sampling": ".decoders.sampler",
    **dict.fromkeys(("after_pass", "compare", "float64"), ".diagnostics.compare"),
    **dict.fromkeys(("explain", "explain_graph"), ".diagnostics.explain"),
    "profile": ".diagnostics.profile",
    "tune": ".diagnostics.tune",
    "IRExecutor": ".executor.executor",
    **dict.fromkeys(("to_exported_program", "to_torch"), ".interop.exported_program"),
    "check_capture": ".training.checks.capture_check",
    "check_replay": ".training.replay_check",
    **dict.fromkeys(("CompileArtifact", "compile_and_capture", "get_artifact"), ".training.compile"),
    "compile_ir": ".training.trace",
    "TrainStep": ".training.train_step",
    # Internal (docs/reference/api.md): served under the name of the package, and listed in its own module.
    **dict.fromkeys(("Captured", "Temporary"), "npu_ir.backend"),
    "Comparison": ".diagnostics.compare",
    "Explanation": ".diagnostics.explain",
    "Profile": ".diagnostics.profile",
    "MemoryPlan": ".codegen.live_ranges",
    "Run": ".executor.node_by_node",
    **dict.fromkeys(("CaptureReport", "Violation"), ".training.checks.violations"),
    "in_capture": ".training.capture.capture_state",
    "warmup_capture_safe": ".training.capture.snapshots",
    **dict.fromkeys(("LoweredGraph", "LoweredOp", "LoweredPartition", "lower"), ".lowering.lowered_graph"),
    **dict.fromkeys(("Call", "CallLog"), ".training.dumps.call_log"),
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
