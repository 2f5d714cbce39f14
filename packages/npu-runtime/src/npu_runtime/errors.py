"""What goes wrong while graphs are run, besides what npu_ir says of graphs, weights and arguments."""

from __future__ import annotations

from npu_ir import NpuError


class BackendError(NpuError):
    """A backend is unknown, cannot run here, or does not keep to its interface."""


class FallbackWarning(UserWarning):
    """A part of a model has no place in a graph: PyTorch runs it by itself."""
