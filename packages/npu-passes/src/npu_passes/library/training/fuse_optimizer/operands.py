"""Operands of the computation of one tensor, by an op on lists or by one op per tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from npu_ir import OpNode, ScalarType, Value
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.rewriting.arguments import arguments_of

# A hyperparameter: a number of the graph, or a literal.
Number: TypeAlias = "Value | float"

_UNCHANGED = frozenset({"aten.detach.default", "aten.alias.default"})
_LISTS = "_foreach_"


@dataclass(frozen=True, slots=True)
class Call:
    """Computation of one tensor.

    Attributes:
        operands: The arguments in the order of the schema; of a list, the element at the index of the tensor.
        nodes: The node, and the nodes after it that return its output unchanged.
    """

    operands: tuple[Any, ...]
    nodes: tuple[OpNode, ...]


class Reader:
    """Reader of the nodes of one graph; caches their arguments."""

    def __init__(self) -> None:
        self._arguments: dict[OpNode, tuple[Any, ...]] = {}

    def call(self, value: Value, *names: str) -> Call | None:
        """Return the call that computes ``value``, if its op has one of these names, on lists or not."""
        origin, passed = strip_aliases(value)
        node = origin.producer
        if node is None or packet_of(node).removeprefix(_LISTS) not in names or node.in_prologue:
            return None
        if not is_on_lists(node):
            return Call(self._arguments_of(node), (node, *passed)) if len(node.outputs) == 1 else None
        operands = tuple(
            item[origin.index] if isinstance(item, list) else item for item in self._arguments_of(node)
        )
        return Call(operands, (node, *passed))

    def _arguments_of(self, node: OpNode) -> tuple[Any, ...]:
        if node not in self._arguments:
            self._arguments[node] = _bound_arguments(node)
        return self._arguments[node]


def _bound_arguments(node: OpNode) -> tuple[Any, ...]:
    """Return all arguments of a node in the order of the schema, including defaults."""
    op = find_op(node.op_type)
    assert op is not None, "the op of a node that is read is known"
    arguments = arguments_of(node, defaults=True)
    return tuple(arguments.get(arg.name) for arg in schema_of(op).args)


def packet_of(node: OpNode) -> str:
    """Return the name of an ATen op without its overload; an empty string for other ops."""
    namespace, _, rest = node.op_type.partition(".")
    return rest.partition(".")[0] if namespace == "aten" else ""


def is_on_lists(node: OpNode) -> bool:
    return packet_of(node).startswith(_LISTS)


def strip_aliases(value: Value) -> tuple[Value, tuple[OpNode, ...]]:
    """Return the value behind detach and alias nodes, and these nodes."""
    passed: list[OpNode] = []
    while value.producer is not None and value.producer.op_type in _UNCHANGED:
        passed.append(value.producer)
        value = value.producer.inputs[0]
    return value, tuple(passed)


def is_same(left: object, right: object) -> bool:
    """Return whether two operands are the same tensor, the same number of the graph, or equal literals."""
    if isinstance(left, Value) and isinstance(right, Value):
        return strip_aliases(left)[0] is strip_aliases(right)[0]
    return is_literal(left) and is_literal(right) and left == right


def is_literal(item: object) -> bool:
    return type(item) in (int, float)  # a bool is an int, but not a hyperparameter


def is_number(item: object) -> bool:
    """Return whether an operand is a number, of the graph or a literal."""
    return is_literal(item) or (isinstance(item, Value) and isinstance(item.type, ScalarType))


def number_nodes(items: Sequence[object]) -> list[OpNode]:
    """Return the nodes that compute these numbers, and the numbers that they read."""
    nodes: dict[OpNode, None] = {}
    pending = [item.producer for item in items if isinstance(item, Value)]
    while pending:
        node = pending.pop()
        if node is None or node in nodes or not node.op_type.startswith("operator."):
            continue
        nodes[node] = None
        pending += [value.producer for value in node.inputs]
    return list(nodes)


def number_operands(item: object, op_type: str) -> tuple[Any, ...] | None:
    """Return the operands of the op that computes a number of the graph; None if it is another one."""
    node = item.producer if isinstance(item, Value) else None
    if node is None or node.op_type != op_type:
        return None
    return _bound_arguments(node)
