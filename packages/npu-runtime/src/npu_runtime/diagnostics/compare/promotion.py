"""Data in float64: tensors, and the arguments of ops that name a dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from npu_runtime.diagnostics.compare.metrics import is_number


def promoted(item: Any) -> Any:
    """Return a tensor of floats in float64, of complex numbers in complex128, anything else as it is."""
    if not isinstance(item, torch.Tensor):
        return item
    if item.is_quantized or not is_number(item.dtype):
        return item
    if item.is_complex():
        return item.to(torch.complex128)
    return item.to(torch.float64) if item.is_floating_point() else item


def promoted_data(item: Any) -> Any:
    """Return an argument of an op with the dtypes in it promoted as `promoted` does tensors."""
    if isinstance(item, list):
        return [promoted_data(part) for part in item]
    if not isinstance(item, torch.dtype):
        return item
    if item.is_complex:
        return torch.complex128
    return torch.float64 if item.is_floating_point and is_number(item) else item


@contextlib.contextmanager
def float64_by_default() -> Iterator[None]:
    """Make new floating-point tensors float64 where no dtype is given; it is set for all threads."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
