"""In-place ops in the bodies of control flow, and around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, randn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from npu_ir import ExportError, convert_exported_program, execute_ir, extract_ir
from npu_ir.capture.functionalize import functionalize
from tests.npu_ir.capture.test_inplace_programs import check
from tests.support.corpus.case import Function
from tests.support.rows import each_row


def relu(x: Tensor) -> Tensor:
    return (x * 2).relu_()


def write_through_views(x: Tensor) -> Tensor:
    y = x * 1
    y[0].zero_()
    y.t()[1:] = 5
    return y


def zero_by_mask(x: Tensor) -> Tensor:
    y = x * 1
    y[y > 0] = 0
    return y


def change_a_constant(x: Tensor) -> Tensor:
    y = torch.tensor([1.0, 2.0, 3.0])
    return x + y.add_(1)


def write_beside_a_constant(x: Tensor) -> Tensor:
    y = x + torch.tensor([1.0, 2.0, 3.0])
    y[0] += torch.tensor(2.0)
    return y


def write_through_dropout(x: Tensor) -> Tensor:
    y = x * 1
    F.dropout(y, 0.5, training=False).add_(1)
    return y


def write_through_einsum(x: Tensor) -> Tensor:
    y = x * 1
    torch.einsum("ij->ji", y).add_(1)
    return y


def polygamma(x: Tensor) -> Tensor:
    return (x.abs() + 1).polygamma_(2)


def write_without_gradients(x: Tensor) -> Tensor:
    y = x * 1
    with torch.no_grad():
        y.t()[0].add_(1)
    return y


def nested(x: Tensor) -> Tensor:
    y = x + torch.tensor(1.0)
    y[0].mul_(2)
    return torch.cond(y.sum() > -100, write_beside_a_constant, torch.clone, (y,))


BODIES = [
    relu,
    write_through_views,
    zero_by_mask,
    change_a_constant,
    write_beside_a_constant,
    write_through_dropout,
    write_through_einsum,
    polygamma,
    write_without_gradients,
    nested,
]


def in_branch(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return torch.cond(x.sum() > -100, body, torch.clone, (x,))


def in_loop(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, body(y)), (torch.tensor(0), x))[1]


def in_scan(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        result = body(carry + row)
        return result, result * 2

    return scan(step, torch.zeros(2, 3), torch.stack([x, x + 1]))


def in_map(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return map_rows(body, torch.stack([x, x - 1]))


def in_checkpoint(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return checkpoint(body, x, use_reentrant=False)


@each_row("body", BODIES)
def test_what_a_branch_writes_stays_in_it(body: Callable[[Tensor], Tensor]) -> None:
    check(Function(lambda x, y: in_branch(body, x)))


@pytest.mark.parametrize("body", [relu, write_beside_a_constant, write_through_dropout, nested])
@pytest.mark.parametrize("around", [in_loop, in_scan, in_map, in_checkpoint])
def test_what_a_body_writes_stays_in_it(around: Any, body: Callable[[Tensor], Tensor]) -> None:
    check(Function(lambda x, y: around(body, x)))


@each_row("around", [in_branch, in_loop, in_scan, in_map, in_checkpoint])
def test_writes_around_control_flow_are_seen_where_they_belong(around: Any) -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        z = x * 2
        view = z.view(-1)
        z.relu_()
        before = around(relu, z)
        view.add_(1)
        after = around(relu, z)
        z[0] = 3
        y.add_(z)
        return before, after, view

    check(Function(program))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_result_of_an_associative_scan_can_be_written() -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        z = x * 2
        view = z.t()
        result = associative_scan(lambda a, b: a + b, z, 0, combine_mode="generic")
        result.add_(1)
        z.relu_()
        return result, view

    check(Function(program))


def test_a_branch_with_local_writes_needs_no_second_trace() -> None:
    program = torch.export.export(
        Function(lambda x: in_branch(zero_by_mask, x)), (randn(2, 3),), strict=False
    )

    functional = functionalize(program)

    assert functional.program is program
    assert [str(found.op) for found in functional.replacements.values()] == ["aten.index_put.default"]


def test_autocast_around_a_branch_holds_in_it() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            return torch.cond(x.sum() > -100, lambda y: y @ y.t(), lambda y: (y @ y.t()).cos(), (x,))

    x = randn(2, 3)

    graph = extract_ir(Function(program), (x,))

    result = execute_ir(graph, (x,))
    assert result.dtype is torch.bfloat16
    assert torch.equal(result, program(x))


@torch.compiler.nested_compile_region
def compiled_relu(x: Tensor) -> Tensor:
    return (x * 2 - 1).relu_()


def test_a_region_that_two_calls_share_may_write() -> None:
    model, x = Function(lambda x: compiled_relu(compiled_relu(x).add_(1))), randn(2, 3)
    program = torch.export.export(model, (x,), strict=True)

    graph = convert_exported_program(program)

    assert torch.equal(execute_ir(graph, (x,)), model(x))


@each_row(
    "branch, problem",
    {
        "writes its operand": (lambda y: y.add_(1).sin(), "input mutation"),
        "returns its operand": (lambda y: y, "aliasing"),
        "returns a view of its operand": (lambda y: y.view(-1).view(2, 3), "aliasing"),
    },
)
def test_torch_export_refuses_bodies_that_share_memory_with_the_outside(
    branch: Callable[[Tensor], Tensor], problem: str
) -> None:
    with pytest.raises(ExportError, match=rf"Encountered {problem} during higher order op tracing"):
        extract_ir(Function(lambda x: in_branch(branch, x * 1)), (randn(2, 3),))
