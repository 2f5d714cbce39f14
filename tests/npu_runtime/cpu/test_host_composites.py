"""The pipeline `host` takes apart the ops that PyTorch defines by ops with kernels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_passes.core.registry import all_pipelines
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import assert_computes, ops, optimized

W = torch.randn(8, 2, 4)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "einsum by a weight": (lambda m, x: torch.einsum("ibh,hnd->ibnd", x, m.weight), (torch.randn(3, 5, 8),)),
    "einsum of two": (
        lambda _, x, y: torch.einsum("ibnd,jbnd->bnij", x, y),
        (torch.randn(3, 2, 4, 5), torch.randn(6, 2, 4, 5)),
    ),
    "einsum of three": (
        lambda _, x, y, z: torch.einsum("ij,jk,kl->il", x, y, z),
        (torch.randn(3, 4), torch.randn(4, 5), torch.randn(5, 2)),
    ),
    "einsum that permutes": (lambda _, x: torch.einsum("ijk->kij", x), (torch.randn(3, 4, 5),)),
    "einsum of a diagonal": (lambda _, x: torch.einsum("iij->j", x), (torch.randn(3, 3, 5),)),
    "einsum with an ellipsis": (
        lambda _, x, y: torch.einsum("...ij,...jk->...ik", x, y),
        (torch.randn(2, 3, 4), torch.randn(4, 5)),
    ),
    "where of a number": (lambda _, x: torch.where(x > 0, x, -2.5), (torch.randn(3, 4),)),
    "where of numbers": (lambda _, x: torch.where(x > 0, 1.5, -2.5), (torch.randn(3, 4),)),
    "where of a number and integers": (lambda _, x: torch.where(x > 2, x, 0.5), (torch.arange(6),)),
    "type_as": (lambda m, x: x.type_as(m.weight), (torch.arange(6),)),
    "multiply": (lambda _, x, y: torch.multiply(x, y), (torch.randn(3, 4), torch.randn(4))),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_composite_op_is_its_parts(name: str) -> None:
    function, inputs = CALLS[name]
    model = Holding(function, weight=torch.nn.Parameter(W))

    graph = optimized(model, *inputs, passes=all_pipelines()["host"].passes)

    assert not {"einsum", "where.ScalarOther", "where.Scalar", "type_as", "multiply.Tensor"} & set(ops(graph))
    assert_computes(graph, model, *inputs)
