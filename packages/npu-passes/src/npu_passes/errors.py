"""The error class of npu-passes."""

from __future__ import annotations

from npu_ir import NpuError


class PassError(NpuError):
    """Error of a pass that broke a graph, changed its results, or cannot be found, configured or ordered."""


def failure_of(what: str, error: Exception, where: str) -> PassError:
    """Return the error that says what failed, for an exception that was raised in it."""
    if isinstance(error, NpuError):
        return PassError(f"{what} failed: {error.message}", where=where, fix=error.fix)
    return PassError(f"{what} failed: {type(error).__name__}: {error}", where=where)
