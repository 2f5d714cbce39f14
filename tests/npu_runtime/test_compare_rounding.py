"""Comparing two sides: differences that rounding explains are not blamed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from npu_ir.ops import register_executor, unregister_executor
from npu_runtime.diagnostics.compare import compare
from tests.npu_runtime.compare_cases import SIN, graph_of
from tests.support.corpus.case import Function


def other_order(x: Tensor) -> Tensor:
    """Return sums of rows in another order than PyTorch's."""
    return x.flip(-1).cumsum(-1)[..., -1].contiguous()


def test_a_cancellation_is_not_blamed() -> None:
    # Sums of 4096 numbers around 1 cancel up to rounding: each side keeps other digits of the noise.
    def cancelled(x: Tensor) -> Tensor:
        return x.sum(-1) * 1000 - x.flip(-1).sum(-1) * 1000

    x = torch.rand(64, 4096)
    register_executor("aten.sum.dim_IntList")(lambda inputs, attrs: [other_order(inputs[0])])
    try:
        found = compare(Function(cancelled), graph_of(cancelled, x), (x,))
    finally:
        unregister_executor("aten.sum.dim_IntList")

    noisy = {row.name: row for row in found.rows if row.is_noise}
    assert found.ok, str(found)
    assert "sub" in noisy
    assert noisy["sub"].difference.max_rel > 0.1
    assert noisy["sub"].noise_floor is not None
    assert noisy["sub"].noise_floor.max > 1e-4
    assert "rounding explains them" in str(found)


def test_a_real_error_behind_a_cancellation_is_blamed() -> None:
    def cancelled(x: Tensor) -> Tensor:
        return ((x + 1000) - 1000).sin()

    x = torch.rand(64)
    register_executor(SIN)(lambda inputs, attrs: [inputs[0].sin() + 0.01])
    try:
        found = compare(Function(cancelled), graph_of(cancelled, x), (x,))
    finally:
        unregister_executor(SIN)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "sin"


def test_the_variance_of_a_huge_mean_is_not_blamed() -> None:
    def spread(x: Tensor) -> Tensor:
        return (x * x).mean(-1) - x.mean(-1) ** 2

    def spread_in_other_order(inputs: Any, attrs: Any) -> Any:
        return [other_order(inputs[0]) / inputs[0].shape[-1]]

    x = torch.rand(32, 1000) + 300
    register_executor("aten.mean.dim")(spread_in_other_order)
    try:
        found = compare(Function(spread), graph_of(spread, x), (x,))
    finally:
        unregister_executor("aten.mean.dim")

    assert found.ok, str(found)
    assert any(row.is_noise for row in found.rows)


def test_without_the_float64_run_the_same_difference_is_blamed() -> None:
    def noisy(x: Tensor) -> Tensor:
        return (x.sum(-1) * 1000).to(torch.float32).view(torch.int32).view(torch.float32)

    x = torch.rand(64, 4096)
    register_executor("aten.sum.dim_IntList")(lambda inputs, attrs: [other_order(inputs[0])])
    try:
        found = compare(Function(noisy), graph_of(noisy, x), (x,))
    finally:
        unregister_executor("aten.sum.dim_IntList")

    assert found.first_divergence is not None
    assert found.first_divergence.op == "aten.view.dtype"
    assert "reads the bits of floats" in str(found)
