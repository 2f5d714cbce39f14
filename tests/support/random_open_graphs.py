"""Random graphs with symbols, numbers, lists that mix data and values, and regions, most of them nonsense."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from npu_ir import Graph, GraphError, ScalarType, TensorType, Value
from npu_ir.core.node import InputKind
from npu_ir.symbolic.constraints import RELATIONS, Constraint, Range
from npu_ir.symbolic.expressions import Expr, call, symbol
from tests.support.random_graphs import (
    any_of,
    any_text,
    dtypes,
    literals,
    op_types,
    provenances,
    tensors,
    trees,
)
from tests.support.random_graphs import types as closed_types

symbol_names = st.sampled_from(
    ["s0", "s1", "u0", "batch", "_", "in_", "inf", "require", "symbol", "region", "A1"]
)
ends = st.none() | st.integers(-3, 2**70)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    low, high = draw(ends), draw(ends)
    return Range(low, high) if low is None or high is None or low <= high else Range(high, low)


@functools.cache
def expressions(symbols: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Expressions over these symbols, and integers."""
    numbers = st.integers(-4, 40) | st.sampled_from([2**31, 2**62])
    leaves = numbers | st.sampled_from([symbol(name) for name in symbols]) if symbols else numbers

    def larger(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.tuples(parts, parts)
        return st.one_of(
            pairs.map(lambda pair: pair[0] + pair[1]),
            pairs.map(lambda pair: pair[0] - pair[1]),
            pairs.map(lambda pair: pair[0] * pair[1]),
            st.tuples(parts, st.integers(1, 9)).map(lambda pair: call("floordiv", *pair)),
            st.tuples(parts, st.integers(1, 9)).map(lambda pair: call("mod", *pair)),
            pairs.map(lambda pair: call("max", *pair)),
            pairs.map(lambda pair: call("min", *pair)),
            st.tuples(parts, st.sampled_from([0.5, 1.0, 1.25, 1e-7])).map(
                lambda pair: call("trunc", pair[0] * pair[1])
            ),
            parts.map(lambda part: call("ceil", call("truediv", part, 3))),
        )

    return st.recursive(leaves, larger, max_leaves=4).filter(lambda found: isinstance(found, (int, Expr)))


@functools.cache
def open_types(symbols: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Types with sizes, strides and numbers over these symbols."""
    sizes = expressions(symbols).filter(lambda size: isinstance(size, Expr) or 0 <= size < 2**63)
    shaped = st.lists(st.tuples(sizes, sizes), max_size=3)
    dense = st.builds(
        lambda pairs, dtype: TensorType(tuple(size for size, _ in pairs), dtype), shaped, dtypes
    )
    strided = st.builds(
        lambda pairs, dtype: TensorType(
            tuple(size for size, _ in pairs), dtype, tuple(stride for _, stride in pairs) or None
        ),
        shaped,
        dtypes,
    )
    sparse = st.builds(
        lambda pairs, layout: TensorType(tuple(size for size, _ in pairs), torch.float32, layout=layout),
        shaped,
        st.sampled_from([torch.sparse_coo, torch.sparse_csr]),
    )
    number = expressions(symbols).map(lambda value: ScalarType("int", value))
    return closed_types | dense | strided | sparse | number


@st.composite
def open_graphs(draw: st.DrawFn, depth: int = 2, around: Mapping[str, Range] | None = None) -> Graph:
    """Graphs with symbols of their own, or regions of a graph that has those of ``around``."""
    graph = Graph(draw(any_text))
    if around is None:
        _declare(draw, graph)
    else:
        for name, range in around.items():
            graph.add_symbol(name, range)
    types = open_types((*graph.symbols,))
    for index in range_of(draw, 2):
        graph.add_input(f"{draw(any_text)}{index}", draw(types))
    if draw(st.booleans()):
        graph.add_constant(draw(any_text), draw(tensors()))
    for _ in range_of(draw, 2):
        _add_node(draw, graph, types, depth)
    leaves = any_of(graph.values) | literals if graph.values else literals
    graph.set_outputs(draw(trees(leaves)))
    return graph


def range_of(draw: st.DrawFn, most: int) -> Any:
    return range(draw(st.integers(0, most)))


def _declare(draw: st.DrawFn, graph: Graph) -> None:
    """Add symbols, each told by an input, and constraints on them."""
    names = (*draw(st.lists(symbol_names, unique=True, max_size=3)),)
    for index, name in enumerate(names):
        size = graph.add_symbol(name, draw(st.none() | ranges()))
        told = draw(st.sampled_from([ScalarType("int", size), TensorType((2, 3 * size - 1), torch.float32)]))
        graph.add_input(f"size{index}", told)
    for _ in range_of(draw, 2):
        sides = draw(expressions(names)), draw(expressions(names))
        try:
            graph.add_constraint(Constraint(sides[0], draw(st.sampled_from(sorted(RELATIONS))), sides[1]))
        except GraphError:
            continue  # no symbol in it


def _add_node(draw: st.DrawFn, graph: Graph, types: st.SearchStrategy[Any], depth: int) -> None:
    inputs = draw(st.lists(any_of(graph.values), max_size=3)) if graph.values else []
    attrs: dict[str, Any] = draw(st.dictionaries(any_text, literals, max_size=2))
    operands = draw(st.none() | st.just([f"x{index}" for index in range(len(inputs))]))
    if inputs and draw(st.booleans()):
        operands, attrs["list"] = _mixed_list(draw, inputs)
    symbols = graph.symbols
    regions = (
        draw(st.dictionaries(any_text, open_graphs(depth=depth - 1, around=symbols), max_size=2))
        if depth and draw(st.integers(0, 2)) == 0
        else {}
    )
    graph.insert(
        draw(op_types),
        inputs,
        attrs,
        types=draw(st.lists(types, max_size=2)),
        operands=operands,
        regions=regions,
        name=draw(any_text),
        provenance=draw(provenances),
    )


def _mixed_list(draw: st.DrawFn, inputs: Sequence[Value]) -> tuple[list[str], list[Any]]:
    """Return operands that put the inputs into a nested list, and this list with None in their places."""
    operands: list[str] = []
    items: list[Any] = []
    for _ in inputs:
        items += draw(st.lists(literals.filter(lambda item: item is not None), max_size=2))
        if draw(st.booleans()):
            operands.append(f"list[{len(items)}]")
            items.append(None)
        else:
            operands.append(f"list[{len(items)}][1]")
            items.append([draw(st.integers()), None])
    return operands, items


def constants_by_target(graph: Graph) -> dict[str, torch.Tensor]:
    """Return the data of every constant, that of regions too; where two share a name, the last one's."""
    found = {}
    for part in graph.graphs():
        for value in part.arguments:
            if value.argument is not None and value.argument.kind is InputKind.CONSTANT:
                assert value.argument.data is not None
                found[value.argument.target] = value.argument.data
    return found
