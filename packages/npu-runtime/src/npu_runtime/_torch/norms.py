"""Batch norms of traced steps, which declare their writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def batch_norm_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of batch norms: the schema of ``native_batch_norm`` declares no writes."""
    aten = torch.ops.aten

    def batch_norm(
        input: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        variance: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        if mean is None:
            return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
        if training:
            return aten._native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps)
        return aten._native_batch_norm_legit_no_training(input, weight, bias, mean, variance, momentum, eps)

    return {aten.native_batch_norm.default: batch_norm}
