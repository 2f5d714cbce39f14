"""Ops that models call, registered with PyTorch.

Extraction, checks and files need only the schema and the fake implementation of an op.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("npu_plugin_example::add_relu", mutates_args=())
def add_relu(x: Tensor, y: Tensor) -> Tensor:
    """Return ``relu(x + y)``, computed by one op."""
    return torch.add(x, y).relu_()


@add_relu.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(x, y)


@torch.library.custom_op("npu_plugin_example::rescale_bits", mutates_args=())
def rescale_bits(x: Tensor, bits: int) -> Tensor:
    """Return ``x / 2**bits``."""
    return x * 2.0**-bits


@rescale_bits.register_fake
def _(x: Tensor, bits: int) -> Tensor:
    return x * 2.0**-bits
