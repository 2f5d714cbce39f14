"""Promotion to float64: of tensors, and of dtypes among the arguments of ops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from npu_runtime.diagnostics.compare.metrics import is_numeric


def promote(item: Any) -> Any:
    """Return a floating-point tensor as float64, a complex one as complex128, anything else unchanged."""
    if not isinstance(item, torch.Tensor):
        return item
    if item.is_quantized or not is_numeric(item.dtype):
        return item
    if item.is_complex():
        return item.to(torch.complex128)
    return item.to(torch.float64) if item.is_floating_point() else item


def promote_dtypes(item: Any) -> Any:
    """Return an argument of an op with its dtypes promoted as `promote` does tensors."""
    if isinstance(item, list):
        return [promote_dtypes(part) for part in item]
    if not isinstance(item, torch.dtype):
        return item
    if item.is_complex:
        return torch.complex128
    return torch.float64 if item.is_floating_point and is_numeric(item) else item


@contextlib.contextmanager
def default_float64() -> Iterator[None]:
    """Set the default dtype to float64 for the block, in all threads."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
