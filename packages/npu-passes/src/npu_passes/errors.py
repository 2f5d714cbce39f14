"""The error class of npu-passes."""

from __future__ import annotations

from npu_ir import NpuError


class PassError(NpuError):
    """Error of a pass that broke a graph, changed its results, or cannot be found, configured or ordered."""
