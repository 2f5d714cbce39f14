"""Tensors without data, for models that are captured on types alone."""

from __future__ import annotations

import torch

from npu_ir.core.types import TensorType
from npu_ir.interpreter.random_data import explained


def empty_tensor(type: TensorType) -> torch.Tensor:
    """Return a tensor of ``type`` without data, on ``meta``.

    Raises:
        UsageError: PyTorch makes no tensors of this type.
    """
    with explained(type):
        if type.strides is None:
            return torch.empty(type.sizes, dtype=type.dtype, layout=type.layout, device="meta")
        return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device="meta")
