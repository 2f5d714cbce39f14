"""Attention over other than four axes, on the host: those before the heads are one axis."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, randn
from torch.nn.functional import scaled_dot_product_attention as attend

from npu_ir import extract_ir
from npu_runtime import IRExecutor
from tests.support.backends.native_backends import HOST
from tests.support.corpus.case import Function

ATTENTION = "aten.scaled_dot_product_attention.default"


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return attend(x, x * 2, x, attn_mask=mask)


def windows(x: Tensor) -> Tensor:
    """Return attention within windows, of queries, keys and values in one tensor, as in NesT."""
    q, k, v = x.reshape(2, 3, 5, 3, 4, 8).permute(3, 0, 4, 1, 2, 5).unbind(0)
    return attend(q, k, v)


FIVE, THREE = randn(2, 3, 6, 7, 8), randn(6, 7, 8)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "no heads": (lambda x: attend(x, x * 2, x), (THREE,)),
    "no batch either": (lambda x: attend(x, x * 2, x), (randn(7, 8),)),
    "transposed": (lambda x: attend(x.mT, x.mT, x.mT, is_causal=True), (THREE,)),
    "other keys": (lambda q, k, v: attend(q, k, v, scale=0.3), (THREE, randn(6, 9, 8), randn(6, 9, 5))),
    "a mask of each head": (masked, (THREE, randn(6, 7, 7))),
    "a mask of all": (masked, (THREE, randn(7, 7))),
    "a bool mask": (masked, (THREE, torch.rand(1, 7, 7) > 0.3)),
    "windows": (windows, (randn(2, 15, 96),)),
    "five axes": (lambda x: attend(x, x * 2, x), (FIVE,)),
    "six axes": (lambda x: attend(x, x * 2, x), (randn(2, 1, 3, 2, 7, 8),)),
    "five axes and a mask of each item": (masked, (FIVE, randn(2, 3, 1, 7, 7))),
    "five axes and a mask of all items": (masked, (FIVE, randn(1, 1, 6, 7, 7))),
    "five axes and a mask of the heads": (masked, (FIVE, randn(6, 7, 7))),
    "an expanded input": (lambda x: attend(*[x.expand(4, 7, 8)] * 3), (randn(1, 7, 8),)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    function, given = CALLS[name]
    inputs = tuple(item.to(dtype) if item.is_floating_point() else item for item in given)
    graph = extract_ir(Function(function), inputs)
    (node,) = graph.nodes_of(ATTENTION)

    found = IRExecutor(graph, backend="host")(*inputs)

    expected = function(*inputs)
    assert HOST.supports(node) is None
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.stride() == expected.stride()
    exact = function(*[item.double() if item.is_floating_point() else item for item in given])
    error = 1e-5 if dtype is torch.float32 else 5e-2
    assert float((found.double() - exact).abs().max()) <= error


@pytest.mark.parametrize(("function", "inputs", "reason"), [
    pytest.param(masked, (FIVE, randn(2, 1, 1, 7, 7)), "a mask of each or of all items, not of [2, 1,",
                 id="mask of some items"),
    pytest.param(lambda q, k: attend(q, k, k), (THREE, randn(1, 7, 8)), "of 3 axes takes one batch, not",
                 id="keys of one item"),
    pytest.param(lambda q, k: attend(q, k, k), (FIVE, randn(3, 6, 7, 8)), "of as many axes, not of [5, 4, 4]",
                 id="fewer axes"),
])  # fmt: skip
def test_what_is_refused_has_the_reason(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], reason: str
) -> None:
    (node,) = extract_ir(Function(function), inputs).nodes_of(ATTENTION)

    assert reason in str(HOST.supports(node))
