"""Specializing: a graph for fixed sizes, static where all are given."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import ones, randn
from torch.export import Dim
from torch.nn import functional as fn

from npu_ir import Graph, GraphError, execute_ir, extract_ir, parse_ir
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

BATCH = {0: Dim("batch", min=2, max=64)}


def captured(function: Callable[..., Any], *args: Any, shapes: Any = (BATCH,)) -> Graph:
    return extract_ir(Function(function), args, dynamic_shapes={"args": shapes}, name="g")


def static(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args, name="g")


def same_names(graph: Graph) -> str:
    """Return the text of a graph with numbered values: names differ where nodes are folded away."""
    names: dict[str, str] = {}
    return re.sub(r"%[\w.]+", lambda found: names.setdefault(found[0], f"%v{len(names)}"), str(graph))


@each_row("function", {
    "elementwise": lambda x: x.relu() + 1,
    "view": lambda x: x.view(-1, 2).sum(0),
    "matmul": lambda x: x.t() @ x,
    "stack": lambda x: torch.stack([x, x], 1).softmax(-1),
    "strides": lambda x: x.t().contiguous().transpose(0, 1),
    "size_as_scalar": lambda x: x * x.shape[0],
    "size_in_a_list": lambda x: x.view(x.shape[0], 2, 2) / x.shape[0],
    "size_returned": lambda x: (x.shape[0], x.numel(), x + 1),
    "computed_size": lambda x: fn.pad(x, (0, 0, x.shape[0] // 2, 1)),
    "from_nothing": lambda x: torch.zeros(x.shape[0] * 2, 3),
})  # fmt: skip
def test_a_specialized_graph_is_the_one_captured_without_symbols(function: Callable[..., Any]) -> None:
    graph = captured(function, randn(5, 4))

    special = graph.specialize({"batch": 8})

    assert same_names(special) == same_names(static(function, randn(8, 4)))


@each_row("constraints, remaining", {
    "sizes are filled in": ("a+b <= 2*a require mod(b, 2) == 0", ["b+4 <= 8", "mod(b, 2) == 0"]),
    "one that holds by itself then is gone": ("a*b-4*b <= 9", []),
})  # fmt: skip
def test_constraints_on_other_symbols_stay(constraints: str, remaining: list[str]) -> None:
    graph = parse_ir(
        f"graph g {{ symbol a in [0, 9] symbol b in [0, 9] require {constraints}\n"
        "input %x: f32[a, b] return %x }"
    )

    special = graph.specialize({"a": 4})

    assert list(map(str, special.constraints)) == remaining
    assert parse_ir(str(special)) == special


def test_an_input_that_is_known_becomes_a_constant_of_the_call() -> None:
    graph = captured(lambda x, n: (x.view(n, -1) * n, n), randn(4, 3), 4, shapes=({0: Dim.AUTO}, Dim.AUTO))

    special = graph.specialize(dict.fromkeys(graph.symbols, 6))

    assert [value.name for value in special.inputs] == ["args_0"]
    assert special.call[1][1] == 6
    result = execute_ir(special, (ones(6, 3), 6))
    assert_same(result, (torch.full((6, 3), 6.0), 6), "the result")


def test_symbols_in_regions_are_replaced_too() -> None:
    graph = captured(
        lambda x: torch.cond(x.sum() > 0, lambda y: y * y.shape[0], lambda y: y - 1, (x,)), randn(5, 4)
    )

    special = graph.specialize({"batch": 8})

    for part in special.graphs():
        assert not any(value.type.symbols for value in part.values)
    for x in (ones(8, 4), -ones(8, 4)):
        expected = x * 8 if x.sum() > 0 else x - 1
        assert torch.equal(execute_ir(special, (x,)), expected)


@each_row("body, sizes, message", {
    "unknown": ("input %x: f32[a]", {"c": 3}, r"graph 'g' has no symbol 'c'\n  fix: its symbols: a, b"),
    "low": ("input %x: f32[a]", {"a": -1}, r"symbol 'a' cannot be -1: it is in \[0, 9\]"),
    "high": ("input %x: f32[a]", {"a": 10}, r"symbol 'a' cannot be 10: it is in \[0, 9\]"),
    "float": ("input %x: f32[a]", {"a": 2.0}, r"symbol 'a' cannot be 2.0: it is in"),
    "bool": ("input %x: f32[a]", {"a": True}, r"symbol 'a' cannot be True: it is in"),
    "text": ("input %x: f32[a]", {"a": "8"}, r"symbol 'a' cannot be '8': it is in"),
    "a constraint": ("require mod(a, 2) == b input %x: f32[a, b]", {"a": 4, "b": 1},
        r"the graph was made for sizes with mod\(a, 2\) == b, not for a = 4, b = 1"),
    "a constraint that nothing then satisfies": ("require a*b >= 1 input %x: f32[a, b]", {"a": 0},
        r"the graph was made for sizes with a\*b >= 1, not for a = 0"),
    "no value": ("input %y: f32[a] input %x: f32[8//a]", {"a": 0}, "8//a has no value for a = 0"),
    "below zero": ("input %x: f32[a-1]", {"a": 0},
        r"%x: sizes and strides are integers from 0 to 2\*\*63 - 1 or expressions, not \(-1,\)"),
})  # fmt: skip
def test_a_size_that_cannot_be_is_refused(body: str, sizes: dict[str, Any], message: str) -> None:
    graph = parse_ir(f"graph g {{ symbol a in [0, 9] symbol b in [0, 9] {body} return %x }}")

    with pytest.raises(GraphError, match=message):
        graph.specialize(sizes)


def test_a_graph_without_symbols_says_so() -> None:
    with pytest.raises(GraphError, match=r"graph 'g' has no symbol 'batch'\n  fix: its symbols: none"):
        Graph("g").specialize({"batch": 3})


def test_a_size_that_an_assertion_forbids_is_refused_with_its_message() -> None:
    graph = parse_ir("""
graph g {
  symbol a in [0, 9]
  input %x: f32[a]
  %n: int(a) = aten.sym_size.int(self=%x) {dim=0}
  %ok: bool = operator.gt(a=%n) {b=3}
  aten._assert_scalar.default(self=%ok) {assert_msg="four rows at least"} as "check_rows"
  return %x
}
""")

    assert "aten._assert_scalar.default" not in str(graph.specialize({"a": 4}))
    with pytest.raises(
        GraphError,
        match=r"the graph does not allow these sizes: .*four rows at least[\s\S]*at: node 'check_rows'",
    ):
        graph.specialize({"a": 3})


def test_symbolic_sizes_are_no_integers() -> None:
    graph = parse_ir(
        "graph g { symbol a in [0, 9]\n"
        "input %x: f32[3, a] input %y: f32[3, a]@[1, a] input %z: f32[a, 4] return %x }"
    )
    x, y, z = (value.tensor_type for value in graph.inputs)

    with pytest.raises(
        GraphError, match=r"f32\[a, 4\] has symbolic sizes\n  fix: specialize the graph first: graph"
    ):
        _ = z.static_shape
    assert z.static_strides == (4, 1)
    for type, strides in ((x, (4, 1)), (y, (1, 4))):
        with pytest.raises(GraphError, match=r"f32\[3, a\].* has symbolic sizes"):
            _ = type.static_strides
        assert type.substitute({"a": 4}).static_strides == strides
