"""Tensors without data, for capture from types."""

from __future__ import annotations

import torch

from npu_ir.core.types import TensorType
from npu_ir.interpreter.random_data import translated_errors


def empty_tensor(type: TensorType) -> torch.Tensor:
    """Return a tensor of ``type`` without data, on ``meta``.

    Raises:
        UsageError: PyTorch cannot construct a tensor of this type.
    """
    with translated_errors(type):
        if type.strides is None:
            return torch.empty(type.static_shape, dtype=type.dtype, layout=type.layout, device="meta")
        return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device="meta")
