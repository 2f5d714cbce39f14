"""Sizes that PyTorch states wrongly while it captures: refused, and pinned with what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, ones, tensor
from torch.export import Dim, ExportedProgram

from npu_ir import ConversionError, convert_exported_program, execute_ir, extract_ir
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

UNIQUE, SELECT = torch.ops.aten.unique_consecutive.default, torch.ops.aten.masked_select.default


def exported(function: Callable[..., Any], *args: Tensor) -> ExportedProgram:
    return torch.export.export(Function(function), args, strict=False)


def stated(program: ExportedProgram, op: Any) -> Any:
    """Return what PyTorch says an op returns."""
    (node,) = (node for node in program.graph.nodes if node.target is op)
    return node.meta["val"]


# unique_consecutive


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


@each_row(
    "function, calls",
    {
        "no dim": (torch.unique_consecutive, [tensor([1, 1, 2]), tensor([1, 2, 1]), tensor([3, 3, 3])]),
        "no dim of two": (torch.unique_consecutive, [ones(2, 2), tensor([[1.0, 2], [2, 1]])]),
        "rows": (
            lambda x: torch.unique_consecutive(x, dim=0),
            [ones(3, 2), tensor([[1.0, 2], [1, 2], [2, 1]])],
        ),
        "columns": (lambda x: torch.unique_consecutive(x, dim=1), [ones(2, 2), tensor([[1.0, 2], [2, 1]])]),
        "with inverse and counts": (
            lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            [tensor([1, 1, 2]), tensor([1, 2, 1])],
        ),
    },
)
def test_other_calls_of_unique_consecutive_compute_what_eager_does(
    function: Callable[..., Any], calls: list[Tensor]
) -> None:
    graph = extract_ir(Function(function), (calls[0],))

    for x in calls:
        assert_same(execute_ir(graph, (x,)), function(x), "the result")


# masked_select


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


@each_row(
    "function, x",
    {
        "as advised": (lambda x, mask: torch.masked_select(x.expand(mask.shape), mask), ones(3)),
        "of one shape": (torch.masked_select, ones(2, 3)),
        "the mask is broadcast": (torch.masked_select, ones(4, 2, 3)),
        "indexed": (lambda x, mask: x[mask], ones(2, 3)),
    },
)
def test_other_calls_of_masked_select_compute_what_eager_does(
    function: Callable[..., Any], x: Tensor
) -> None:
    masks = [ones(2, 3) > 0, ones(2, 3) < 0, torch.eye(2, 3) > 0]
    graph = extract_ir(Function(function), (x, masks[0]))

    for mask in masks:
        assert_same(execute_ir(graph, (x, mask)), function(x, mask), "the result")


def test_masked_select_takes_open_sizes() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.masked_select(x, x > 1)

    graph = extract_ir(Function(function), (ones(3, 4),), dynamic_shapes={"args": ({0: Dim("b")},)})

    for rows in (2, 5):
        x = torch.randn(rows, 4) + 1
        assert torch.equal(execute_ir(graph, (x,)), function(x))
