"""Errors of npu-cuda; each carries a `status`, as the native core reports it."""

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
    """Base class of all errors of npu-cuda."""

    status: Status = Status.Internal


class InvalidArgumentError(NpuCudaError, ValueError):
    """Invalid use by the caller: counts, shapes, pointers, devices, attributes, overlaps."""

    status = Status.InvalidArgument


class NotSupportedError(NpuCudaError, NotImplementedError):
    """No kernel supports the call; the text lists each kernel with its reason."""

    status = Status.NotImplemented


class InternalError(NpuCudaError):
    """A failure that the caller did not cause."""

    status = Status.Internal


class DeviceError(InternalError):
    """A failure of the device or its driver."""

    status = Status.DeviceError


class UnavailableError(NpuCudaError):
    """A feature that is not in this build, or not on this machine."""

    status = Status.Unavailable
