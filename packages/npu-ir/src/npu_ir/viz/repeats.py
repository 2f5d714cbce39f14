"""Which blocks of a model are the same block again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_ir.core.literals import same_literal
from npu_ir.core.node import InputKind, OpNode, Value


@dataclass(frozen=True, slots=True)
class Program:
    """The nodes of a graph in order, and where among them each one stands."""

    nodes: Sequence[OpNode]
    position: Mapping[OpNode, int]

    def repeats(self, start: int, length: int, *, first: bool) -> bool:
        """Return whether the ``length`` nodes from ``start + length`` on do what those from ``start`` on do.

        Ops, attributes, types and the wiring among them are equal. What they read from outside has the
        same type, and is the same value or was made equally far ahead of them.

        Args:
            start: Where the earlier block begins; the later one comes right behind it.
            length: Nodes in each of the two.
            first: Whether the earlier block is the first of its kind, which may read from elsewhere.
        """
        later = start + length
        for offset in range(length):
            node, again = self.nodes[start + offset], self.nodes[later + offset]
            if not _same_op(node, again):
                return False
            pairs = zip(node.inputs, again.inputs, strict=True)
            if not all(self._same_source(*pair, start, later, first) for pair in pairs):
                return False
        return True

    def _same_source(self, left: Value, right: Value, start: int, later: int, first: bool) -> bool:
        if left is right:
            return True
        if left.type != right.type:
            return False
        if is_weight(left) or is_weight(right):
            return _kind(left) is _kind(right)
        offsets = self._offset(left, start), self._offset(right, later)
        if first and max(offsets) < 0:
            return True
        return offsets[0] == offsets[1] and left.index == right.index

    def _offset(self, value: Value, start: int) -> int:
        """Return how far behind ``start`` a value is made; the graph's inputs come before all nodes."""
        return -1 - len(self.nodes) if value.producer is None else self.position[value.producer] - start


def is_weight(value: Value) -> bool:
    """Return whether ``value`` is a parameter, a buffer, optimizer state or a constant."""
    return _kind(value) not in (None, InputKind.INPUT)


def _kind(value: Value) -> InputKind | None:
    return None if value.argument is None else value.argument.kind


def _same_op(left: OpNode, right: OpNode) -> bool:
    return (
        (left.op_type, left.operands, len(left.inputs)) == (right.op_type, right.operands, len(right.inputs))
        and [value.type for value in left.outputs] == [value.type for value in right.outputs]
        and left.attrs.keys() == right.attrs.keys()
        and all(same_literal(left.attrs[name], right.attrs[name]) for name in left.attrs)
        and dict(left.regions) == dict(right.regions)
    )
