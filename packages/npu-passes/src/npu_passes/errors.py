"""The error class of npu-passes."""

from __future__ import annotations

from npu_ir import NpuError


class PassError(NpuError):
    """A pass broke a graph, changed what it computes, or cannot be found, configured or ordered."""
