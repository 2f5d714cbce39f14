"""npu-runtime: runs npu-ir graphs fast, on the CPU and on any backend."""

from npu_runtime.backend import Backend, BackendOp, Captured
from npu_runtime.errors import BackendError

__version__ = "0.1.0"

__all__ = ["Backend", "BackendError", "BackendOp", "Captured", "__version__"]
