"""The native kernels as backends of npu-ir.

In: partitions of a graph. Out: native programs. The only folder of npu_cuda that imports npu_ir and
PyTorch. Open `native.py` first.
"""

from npu_cuda.errors import UnavailableError

try:
    import npu_ir  # noqa: F401
except ImportError as error:
    raise UnavailableError(
        "the backends run graphs of npu-ir, which is not installed or cannot be imported: "
        'python -m pip install "npu-ir[cuda]"'
    ) from error

from npu_cuda.backend.native import CudaBackend, HostBackend, NativeBackend

__all__ = ["CudaBackend", "HostBackend", "NativeBackend"]
