"""npu-runtime: runs npu-ir graphs fast, on the CPU and on any backend."""

from npu_runtime.backend import Backend, BackendOp, Captured, Temporary
from npu_runtime.errors import BackendError, FallbackWarning
from npu_runtime.executor import IRExecutor
from npu_runtime.observing import Run
from npu_runtime.torch_program import to_exported_program, to_torch

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendError",
    "BackendOp",
    "Captured",
    "FallbackWarning",
    "IRExecutor",
    "Run",
    "Temporary",
    "__version__",
    "to_exported_program",
    "to_torch",
]
