"""The numbers in tensors, as comparisons see them."""

from __future__ import annotations

import torch


def equal_elements(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return which elements of two tensors are the same number: NaN equals NaN, and 0.0 equals -0.0."""
    return (left == right) | (left.isnan() & right.isnan())


def largest_magnitude(tensor: torch.Tensor) -> float:
    """Return the largest finite magnitude in a non-empty tensor of floating-point or complex numbers."""
    return float(torch.where(tensor.isfinite(), tensor.abs(), 0.0).max())
