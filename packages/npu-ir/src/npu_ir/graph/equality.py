"""Equality of graphs, and of the data in them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import same_literal
from npu_ir.core.node import Argument, OpNode, Value
from npu_ir.core.tensor_bytes import same_data

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def same_graph(left: Graph, right: Graph) -> bool:
    """Return whether both have the same values, nodes, signature and data, in the same order.

    Names are compared, provenance is not. Data is compared bitwise.
    """
    return (
        left.name == right.name
        and dict(left.symbols) == dict(right.symbols)
        and left.constraints == right.constraints
        and _all(_same_value, left.arguments, right.arguments)
        and _all(_same_node, left.nodes, right.nodes)
        and left.call[0] == right.call[0]
        and _all(_same_leaf, left.call[1], right.call[1])
        and left.results[0] == right.results[0]
        and _all(_same_leaf, left.results[1], right.results[1])
        and {target.name: value.name for target, value in left.updates.items()}
        == {target.name: value.name for target, value in right.updates.items()}
    )


def _all(same: Any, left: Iterable[Any], right: Iterable[Any]) -> bool:
    missing = object()
    pairs = zip_longest(left, right, fillvalue=missing)
    return all(a is not missing and b is not missing and same(a, b) for a, b in pairs)


def _same_value(left: Value, right: Value) -> bool:
    return (left.name, left.type) == (right.name, right.type) and _same_argument(
        left.argument, right.argument
    )


def _same_argument(left: Argument | None, right: Argument | None) -> bool:
    if left is None or right is None:
        return left is right
    fields = operator.attrgetter("kind", "target", "aliases", "persistent", "overlaps")
    return fields(left) == fields(right) and same_data(left.data, right.data)


def _same_node(left: OpNode, right: OpNode) -> bool:
    return (
        (left.name, left.op_type, left.operands, left.in_prologue)
        == (right.name, right.op_type, right.operands, right.in_prologue)
        and [value.name for value in left.inputs] == [value.name for value in right.inputs]
        and left.attrs.keys() == right.attrs.keys()
        and all(same_literal(left.attrs[name], right.attrs[name]) for name in left.attrs)
        and _all(_same_value, left.outputs, right.outputs)
        and list(left.regions) == list(right.regions)
        and all(map(same_graph, left.regions.values(), right.regions.values()))
    )


def _same_leaf(left: Any, right: Any) -> bool:
    if isinstance(left, Value) and isinstance(right, Value):
        return left.name == right.name
    return not isinstance(left, Value) and not isinstance(right, Value) and same_literal(left, right)
