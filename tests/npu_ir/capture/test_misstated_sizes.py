"""Sizes that PyTorch states wrongly while it captures: refused, and pinned with what PyTorch does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, ones
from torch.export import ExportedProgram

from npu_ir import ConversionError, convert_exported_program
from tests.support.corpus.case import Function
from tests.support.rows import each_row

UNIQUE, SELECT = torch.ops.aten.unique_consecutive.default, torch.ops.aten.masked_select.default


def exported(function: Callable[..., Any], *args: Tensor) -> ExportedProgram:
    return torch.export.export(Function(function), args, strict=False)


def stated(program: ExportedProgram, op: Any) -> Any:
    """Return what PyTorch says an op returns."""
    (node,) = (node for node in program.graph.nodes if node.target is op)
    return node.meta["val"]


@each_row("rank", [1, 2, 3])
def test_a_negative_dim_of_unique_consecutive_is_refused_while_pytorch_misstates_it(rank: int) -> None:
    x = ones(*[2] * rank)

    def function(x: Tensor) -> Tensor:
        return torch.unique_consecutive(x, dim=-1)

    program = exported(function, x)

    assert stated(program, UNIQUE)[0].dim() != function(x).dim()  # else the refusal can go
    with pytest.raises(
        ConversionError,
        match=r"PyTorch states the shape of unique_consecutive wrongly here \(torch 2.13\)\n"
        r"  at: node 'unique_consecutive', .*\n"
        r"  fix: pass a 1-D tensor without dim, or a dim that is not negative",
    ):
        convert_exported_program(program)


def test_pytorch_bounds_the_size_of_masked_select_by_its_first_tensor() -> None:
    x, mask = ones(3), ones(2, 3) > 0

    program = exported(torch.masked_select, x, mask)

    (size,) = stated(program, SELECT).shape
    upper = program.range_constraints[size.node.expr].upper
    assert upper == 3 < torch.masked_select(x, mask).numel()  # else the refusal can go


@pytest.mark.parametrize("shape", [(3,), (2, 1), (1, 1), ()], ids=str)
def test_a_broadcast_tensor_of_masked_select_is_refused(shape: tuple[int, ...]) -> None:
    program = exported(torch.masked_select, ones(shape), ones(2, 3) > 0)

    with pytest.raises(
        ConversionError,
        match=r"PyTorch bounds the size of masked_select by its first tensor, which is broadcast here "
        r"\(torch 2.13\)\n  at: node 'masked_select', .*\n"
        r"  fix: broadcast first: torch.masked_select\(x.expand\(mask.shape\), mask\)",
    ):
        convert_exported_program(program)
