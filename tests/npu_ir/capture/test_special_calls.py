"""Special calls of torch.export: dropped, inlined, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import ones, randn, tensor
from torch.utils.checkpoint import checkpoint

from npu_ir import ConversionError, ExecutionError, Graph, convert_exported_program, execute_ir, extract_ir
from npu_ir.capture.special_calls import _REFUSED, DROPPED, require_convertible
from tests.support.corpus.case import Function
from tests.support.rows import each_row


def captured(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args)


def ops(graph: Graph) -> list[str]:
    return [node.op_type for part in graph.graphs() for node in part.nodes]


# Dropped


def sized(x: Any) -> Any:
    n = x[0].item()
    torch._check_is_size(n)
    torch._check(n <= 8)
    return ones(n)


def marked(x: Any) -> Any:
    with torch.profiler.record_function("part"):
        return x * 2


def switched(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y.sin()


def cast(x: Any) -> Any:
    return x.to(torch.float64) + 1


@each_row(
    "function, argument",
    {
        "ranges": (sized, tensor([3])),
        "profiler": (marked, randn(3)),
        "gradients": (switched, randn(3, requires_grad=True)),
        "metadata": (cast, randn(3)),
    },
)
def test_what_means_nothing_at_run_time_is_dropped(function: Callable[..., Any], argument: Any) -> None:
    graph = captured(function, argument)

    assert not {*ops(graph)} & DROPPED.keys()
    assert not any("profiler" in op or "grad" in op for op in ops(graph))
    assert torch.equal(execute_ir(graph, (argument,)), function(argument).detach())


def test_what_is_dropped_has_a_reason() -> None:
    assert all(reason for reason in DROPPED.values())


def test_a_range_that_is_dropped_is_still_checked() -> None:
    graph = captured(sized, tensor([3]))

    assert str(graph.symbols["u0"]) == "[0, 8]"
    with pytest.raises(ExecutionError, match=r"Runtime assertion failed for expression u0 <= 8"):
        execute_ir(graph, (tensor([9]),))


# Taken apart


def test_a_checkpoint_is_what_is_in_it() -> None:
    function = lambda x: checkpoint(lambda y: y.sin() * 2, x, use_reentrant=False) + 1  # noqa: E731
    graph = captured(function, randn(3))
    x = randn(3)

    assert ops(graph) == ["aten.sin.default", "aten.mul.Tensor", "aten.add.Tensor"]
    assert torch.equal(execute_ir(graph, (x,)), function(x))


def test_a_region_compiled_once_is_what_is_in_it_every_time() -> None:
    part = torch.compiler.nested_compile_region(lambda y: y.sin() * 2)
    graph = captured(lambda x: part(part(x)), randn(3))
    x = randn(3)

    assert ops(graph) == ["aten.sin.default", "aten.mul.Tensor"] * 2
    assert torch.equal(execute_ir(graph, (x,)), (x.sin() * 2).sin() * 2)


def test_gradient_modes_inside_a_branch_are_taken_apart() -> None:
    def branch(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y + x

    graph = captured(lambda x: torch.cond(x.sum() > 0, branch, lambda y: y * 1, (x,)), randn(3))
    x = ones(3)

    assert not any("grad" in op for op in ops(graph))
    assert torch.equal(execute_ir(graph, (x,)), x * 3)


# Refused


def fx_node() -> torch.fx.Node:
    return torch.fx.Graph().call_function(torch.sin, ())


@each_row("name", sorted(_REFUSED))
def test_what_has_no_place_is_refused_by_name(name: str) -> None:
    short = name.rpartition(".")[2]

    with pytest.raises(ConversionError, match=rf"{short}[\s\S]*at: node 'sin'[\s\S]*fix: ") as caught:
        require_convertible(fx_node(), name)
    assert caught.value.fix


def test_a_function_that_is_no_operator_is_refused_with_how_to_convert_it() -> None:
    program = torch.export.export(Function(lambda x: x.sin()), (randn(3),))
    node = next(node for node in program.graph.nodes if node.op == "call_function")
    node.target = torch.special.sinc

    with pytest.raises(
        ConversionError,
        match=(
            r"sinc is not an operator of torch.ops, nor a function of numbers\n"
            r"  at: node 'sin'[\s\S]*fix: register_conversion\('.*sinc'\)"
        ),
    ):
        convert_exported_program(program)
