"""What npu-runtime warns of; its errors are those of npu_ir."""

from __future__ import annotations


class FallbackWarning(UserWarning):
    """A part of a model has no place in a graph: PyTorch runs it by itself."""
