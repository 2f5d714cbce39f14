"""The native kernels as backends of npu-ir.

In: partitions of a graph. Out: native programs. The only folder of npu_cuda that imports npu_ir and
PyTorch. Open `native.py` first.
"""

from npu_cuda.backend.native import CudaBackend, HostBackend, NativeBackend

__all__ = ["CudaBackend", "HostBackend", "NativeBackend"]
