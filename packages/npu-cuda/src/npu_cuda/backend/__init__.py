"""Native kernels as backends of npu-ir; the one folder of npu_cuda that is built on npu_ir and torch."""

from npu_cuda.backend.native import CudaBackend, HostBackend, NativeBackend

__all__ = ["CudaBackend", "HostBackend", "NativeBackend"]
