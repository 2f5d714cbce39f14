"""npu-runtime: runs npu-ir graphs fast, on the CPU and on any backend."""

from npu_runtime.backend import Backend, BackendOp, Captured, Temporary
from npu_runtime.comparing import Comparison, after_pass, compare, float64
from npu_runtime.errors import BackendError, FallbackWarning
from npu_runtime.executor import IRExecutor
from npu_runtime.explaining import Explanation, explain, explain_graph
from npu_runtime.memory_plan import MemoryPlan
from npu_runtime.observing import Run
from npu_runtime.profiling import Profile, profile
from npu_runtime.torch_program import to_exported_program, to_torch

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendError",
    "BackendOp",
    "Captured",
    "Comparison",
    "Explanation",
    "FallbackWarning",
    "IRExecutor",
    "MemoryPlan",
    "Profile",
    "Run",
    "Temporary",
    "__version__",
    "after_pass",
    "compare",
    "explain",
    "explain_graph",
    "float64",
    "profile",
    "to_exported_program",
    "to_torch",
]
