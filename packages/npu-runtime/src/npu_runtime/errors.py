"""The warnings of npu-runtime, and its errors besides those of npu_ir."""

from __future__ import annotations

from npu_ir.errors import NpuError


class FallbackWarning(UserWarning):
    """A part of a model cannot be converted to a graph: PyTorch runs it by itself."""


class GenerationWarning(UserWarning):
    """A model comes with options for the choice of tokens that a `Decoder` does not follow."""


class CacheWarning(UserWarning):
    """A file in a cache is damaged, so it is ignored and written again; or its folder cannot be used."""


class TracingError(NpuError):
    """A training step cannot be traced into a graph."""


class CaptureError(NpuError):
    """A step cannot be captured or replayed."""
