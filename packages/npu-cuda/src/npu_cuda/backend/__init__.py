"""The native kernels as backends of npu-ir; the one part of npu_cuda that knows npu_ir and torch."""

from npu_cuda.backend.native import CudaBackend, HostBackend, NativeBackend

__all__ = ["CudaBackend", "HostBackend", "NativeBackend"]
