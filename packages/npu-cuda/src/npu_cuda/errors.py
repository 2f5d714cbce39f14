"""What npu-cuda raises. Each error carries a `status`, as the native core reports it."""

from __future__ import annotations

from npu_cuda._C import Status

__all__ = [
    "DeviceError",
    "InternalError",
    "InvalidArgumentError",
    "NotSupportedError",
    "NpuCudaError",
    "UnavailableError",
]


class NpuCudaError(RuntimeError):
    """The base of all errors of npu-cuda."""

    status: Status = Status.Internal


class InvalidArgumentError(NpuCudaError, ValueError):
    """The caller is wrong: counts, shapes, pointers, devices, attributes, overlaps."""

    status = Status.InvalidArgument


class NotSupportedError(NpuCudaError, NotImplementedError):
    """No kernel takes this; the text lists each kernel with its reason."""

    status = Status.NotImplemented


class InternalError(NpuCudaError):
    """Something went wrong that the caller has no part in."""

    status = Status.Internal


class DeviceError(InternalError):
    """The device, or its driver, failed."""

    status = Status.DeviceError


class UnavailableError(NpuCudaError):
    """What was asked for is not in this build, or not on this machine."""

    status = Status.Unavailable
