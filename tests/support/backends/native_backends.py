"""The backends of npu-cuda, as parameters of tests."""

import pytest

from npu_cuda.backend import CudaBackend, HostBackend

HOST, CUDA = HostBackend(), CudaBackend()
# A build without kernels for a device, or a machine without it, leaves out what is for it.
NATIVE_BACKENDS = [
    pytest.param(
        backend, id=backend.name, marks=pytest.mark.skipif(not backend.devices(), reason=backend.absence())
    )
    for backend in (HOST, CUDA)
]
