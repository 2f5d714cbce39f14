"""What npu-cuda brings to npu-ir: the backends ``host`` and ``cuda``, and what `npu doctor` says of them."""

from __future__ import annotations

from typing import Any

from npu_ir.hookspecs import hookimpl


@hookimpl
def npu_backends() -> list[Any]:
    from npu_cuda.backend import CudaBackend, HostBackend

    return [HostBackend(), CudaBackend()]


@hookimpl
def npu_doctor() -> list[Any]:
    from npu_cuda.doctor import all_checks

    return all_checks()
