"""Specializing: a graph for fixed sizes, static where all are given."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, ones, randn
from torch.export import Dim
from torch.nn import functional as fn

from npu_ir import Graph, GraphError, execute_ir, extract_ir, parse_ir, save_ir
from npu_ir.core.types import ScalarType
from npu_ir.symbolic.expressions import Expr
from tests.support.corpus.case import Function, call
from tests.support.corpus.comparison import assert_same
from tests.support.corpus.journey import specialized_for
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


# The static graph


@each_row(
    "function",
    {
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
    },
)
def test_a_specialized_graph_is_the_one_captured_without_symbols(function: Callable[..., Any]) -> None:
    graph = captured(function, randn(5, 4))

    special = graph.specialize({"batch": 8})

    assert same_names(special) == same_names(static(function, randn(8, 4)))


def test_a_specialized_graph_has_no_symbols_and_the_other_is_as_before() -> None:
    graph = captured(lambda x: x.view(x.shape[0] * 4), randn(5, 4))
    text = str(graph)

    special = graph.specialize({"batch": 8})

    assert not special.symbols
    assert not special.constraints
    assert not any(isinstance(size, Expr) for value in special.values for size in value.tensor_type.shape)
    assert [node.op_type for node in special.nodes] == ["aten.view.default"]
    assert dict(special.nodes[0].attrs) == {"size": [32]}
    assert str(graph) == text


def test_a_specialized_graph_is_written_and_read(tmp_path: Any) -> None:
    special = captured(lambda x: x.view(x.shape[0] * 4), randn(5, 4)).specialize({"batch": 8})

    save_ir(special, tmp_path / "g.json")

    assert parse_ir(str(special)) == special
    assert "symbol" not in (tmp_path / "g.json").read_text()


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: Any) -> Any:
        y = fn.avg_pool2d(self.convolution(x).relu(), 2)
        y = y.flatten(2).mean(-1) + self.offset * x.shape[2]
        return self.head(y), y.shape[0]


@each_row(("batch", "height"), [(2, 10), (5, 13)])
def test_specialized_dynamic_and_eager_are_equal(batch: int, height: int) -> None:
    model = Small().eval()
    graph = extract_ir(model, (randn(3, 3, 9, 8),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO},))
    x = randn(batch, 3, height, 8)

    special = specialized_for(graph, call(x))

    with torch.no_grad():
        expected = model(x)
    assert not special.symbols
    for item in (graph, special):
        assert_same(execute_ir(item, (x,), weights=model.state_dict()), expected, "the result")


# Some of the symbols


def test_symbols_that_are_not_given_stay() -> None:
    graph = captured(
        lambda x, y: (x @ y).view(-1), randn(3, 4), randn(4, 5), shapes=(BATCH, {1: Dim("width", min=2)})
    )

    special = graph.specialize({"batch": 8})

    assert {name: str(range) for name, range in special.symbols.items()} == {"width": "[2, inf]"}
    assert str(special.value("view").type) == "f32[8*width]"
    assert torch.equal(execute_ir(special, (ones(8, 4), ones(4, 7))), torch.full((56,), 4.0))
    assert same_names(special.specialize({"width": 7})) == same_names(
        graph.specialize({"width": 7, "batch": 8})
    )


def test_specializing_nothing_gives_an_equal_graph() -> None:
    graph = captured(lambda x: x + 1, randn(3, 4))

    special = graph.specialize({})

    assert special == graph
    assert special is not graph


def test_constraints_on_other_symbols_stay_with_the_sizes_filled_in() -> None:
    graph = parse_ir(
        "graph g { symbol a in [0, 9] symbol b in [0, 9] require a+b <= 2*a require mod(b, 2) == 0\n"
        "input %x: f32[a, b] return %x }"
    )

    special = graph.specialize({"a": 4})

    assert list(map(str, special.constraints)) == ["b+4 <= 8", "mod(b, 2) == 0"]
    assert parse_ir(str(special)) == special


def test_a_constraint_that_holds_by_itself_then_is_gone() -> None:
    graph = parse_ir(
        "graph g { symbol a in [0, 9] symbol b in [0, 9] require a*b <= 20 input %x: f32[a, b] return %x }"
    )

    special = graph.specialize({"a": 0})

    assert special.constraints == ()
    assert parse_ir(str(special)) == special


def test_a_constraint_that_cannot_hold_then_is_an_error() -> None:
    graph = parse_ir(
        "graph g { symbol a in [0, 9] symbol b in [0, 9] require a*b >= 1 input %x: f32[a, b] return %x }"
    )

    with pytest.raises(GraphError, match=r"the graph was made for sizes with a\*b >= 1, not for a = 0"):
        graph.specialize({"a": 0})


# Numbers


def test_numbers_that_are_known_are_plain_data() -> None:
    def function(x: Any) -> Any:
        n = x.shape[0]
        return x.view(n, -1) * (n + 1), [n // 2, n * 0.5], torch.sym_max(n, 7)

    graph = captured(function, randn(5, 4))

    special = graph.specialize({"batch": 8})

    assert not any(isinstance(value.type, ScalarType) for value in special.values)
    result = execute_ir(special, (ones(8, 4),))
    assert_same(result, function(ones(8, 4)), "the result")
    assert result[1:] == ([4, 4.0], 8)


def test_an_input_that_is_known_becomes_a_constant_of_the_call() -> None:
    graph = captured(lambda x, n: (x.view(n, -1) * n, n), randn(4, 3), 4, shapes=({0: Dim.AUTO}, Dim.AUTO))

    special = graph.specialize(dict.fromkeys(graph.symbols, 6))

    assert [value.name for value in special.inputs] == ["args_0"]
    assert special.call[1][1] == 6
    result = execute_ir(special, (ones(6, 3), 6))
    assert_same(result, (torch.full((6, 3), 6.0), 6), "the result")


def test_a_number_read_from_a_tensor_stays() -> None:
    graph = captured(lambda x: x.sum().item() + x.shape[0], randn(5, 4))

    special = graph.specialize({"batch": 8})

    assert "aten.item.default" in {node.op_type for node in special.nodes}
    assert execute_ir(special, (ones(8, 4),)) == 40.0


def test_data_dependent_sizes_stay_open() -> None:
    graph = captured(lambda x: x[x > 0] * x.shape[0], randn(5, 4))

    special = graph.specialize({"batch": 2})

    assert list(special.symbols) == ["u0"]
    assert torch.equal(execute_ir(special, (ones(2, 4),)), torch.full((8,), 2.0))


# Regions


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


# Errors


@each_row(
    "sizes, message",
    {
        "unknown": ({"b": 3}, r"graph 'g' has no symbol 'b'\n  fix: its symbols: batch"),
        "low": ({"batch": 1}, r"symbol 'batch' cannot be 1: it is in \[2, 64\]"),
        "high": ({"batch": 65}, r"symbol 'batch' cannot be 65: it is in \[2, 64\]"),
        "float": ({"batch": 2.0}, r"symbol 'batch' cannot be 2.0: it is in"),
        "bool": ({"batch": True}, r"symbol 'batch' cannot be True: it is in"),
        "text": ({"batch": "8"}, r"symbol 'batch' cannot be '8': it is in"),
    },
)
def test_a_size_that_cannot_be_is_refused(sizes: dict[str, Any], message: str) -> None:
    graph = captured(lambda x: x + 1, randn(5, 4))

    with pytest.raises(GraphError, match=message):
        graph.specialize(sizes)


def test_a_graph_without_symbols_says_so() -> None:
    graph = static(lambda x: x + 1, randn(5, 4))

    with pytest.raises(GraphError, match=r"graph 'g' has no symbol 'batch'\n  fix: its symbols: none"):
        graph.specialize({"batch": 3})


def test_a_size_that_violates_a_constraint_is_refused() -> None:
    graph = parse_ir(
        "graph g { symbol a in [0, 9] symbol b in [0, 9] require mod(a, 2) == b input "
        "%x: f32[a, b] return %x }"
    )

    with pytest.raises(
        GraphError, match=r"the graph was made for sizes with mod\(a, 2\) == b, not for a = 4, b = 1"
    ):
        graph.specialize({"a": 4, "b": 1})


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


def test_a_size_without_a_value_is_refused() -> None:
    graph = parse_ir("graph g { symbol a in [0, 9] input %x: f32[a] input %y: f32[8//a] return %y }")

    with pytest.raises(GraphError, match=r"8//a has no value for a = 0"):
        graph.specialize({"a": 0})


def test_sizes_below_zero_are_refused() -> None:
    graph = parse_ir("graph g { symbol a in [0, 9] input %x: f32[a-1] return %x }")

    with pytest.raises(
        GraphError,
        match=r"%x: sizes and strides are integers from 0 to 2\*\*63 - 1 or expressions, not \(-1,\)",
    ):
        graph.specialize({"a": 0})


def test_weights_of_symbolic_sizes_have_no_integer_sizes() -> None:
    type = captured(lambda x: x + 1, randn(5, 4)).inputs[0].tensor_type

    with pytest.raises(
        GraphError,
        match=r"f32\[batch, 4\] has symbolic sizes\n  fix: specialize the graph first: graph.specialize",
    ):
        _ = type.static_shape
    assert type.static_strides == (4, 1)


def test_symbolic_strides_have_no_integer_steps() -> None:
    graph = parse_ir(
        "graph g { symbol a in [0, 9] input %x: f32[3, a] input %y: f32[3, a]@[1, a] return %x }"
    )

    for value in graph.inputs:
        with pytest.raises(GraphError, match=r"f32\[3, a\].* has symbolic sizes"):
            _ = value.tensor_type.static_strides
    assert [value.tensor_type.substitute({"a": 4}).static_strides for value in graph.inputs] == [
        (4, 1),
        (1, 4),
    ]
