"""Which values are known once weights are bound, before the graph is called."""

from __future__ import annotations

from collections.abc import Container

from npu_ir import Graph, InputKind, Value
from npu_ir.ops.effects import is_pure

_DEPTH = 64


def is_weight(graph: Graph, value: Value, known: Container[Value] = ()) -> bool:
    """Return whether ``value`` depends on nothing but weights and constants.

    These are parameters, constants, buffers that the graph does not update, what the prologue computes, and what
    pure nodes compute from such values (at most 64 in a row): `constant-folding` moves those into the prologue.

    Args:
        graph: The graph of ``value``.
        value: Any value of it.
        known: Values that are weights, as was found out before.
    """
    pending, seen = [(value, 0)], {value}
    while pending:
        item, depth = pending.pop()
        node = item.producer
        if item in known:
            continue
        if node is None:
            if not is_weight_argument(graph, item):
                return False
        elif not node.in_prologue:
            if depth == _DEPTH or node.regions or item.type.symbols or not is_pure(node):
                return False
            pending += [(operand, depth + 1) for operand in node.inputs if operand not in seen]
            seen.update(node.inputs)
    return True


def is_weight_argument(graph: Graph, value: Value) -> bool:
    """Return whether a value from outside is the same in every call: no input, and not updated."""
    is_input = value.argument is None or value.argument.kind is InputKind.INPUT
    return not is_input and value not in graph.updates
