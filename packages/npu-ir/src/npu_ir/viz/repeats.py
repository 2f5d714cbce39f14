"""Detection of repeated blocks of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_ir.core.literals import same_literal
from npu_ir.core.node import InputKind, OpNode, Value


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """The nodes of a graph in execution order, and the position of each."""

    nodes: Sequence[OpNode]
    position: Mapping[OpNode, int]

    def repeats(self, start: int, length: int, *, first: bool) -> bool:
        """Return whether the ``length`` nodes at ``start + length`` repeat those at ``start``.

        Ops, attributes, types and the edges among them are equal. The values they read from outside have
        the same type, and are the same value or were produced at the same distance before the block.

        Args:
            start: Start of the earlier block; the later one follows immediately.
            length: Number of nodes in each block.
            first: The earlier block is the first copy, which may read from elsewhere.
        """
        later = start + length
        for offset in range(length):
            node, again = self.nodes[start + offset], self.nodes[later + offset]
            if not _is_same_op(node, again):
                return False
            pairs = zip(node.inputs, again.inputs, strict=True)
            if not all(self._has_same_source(*pair, start, later, first) for pair in pairs):
                return False
        return True

    def _has_same_source(self, left: Value, right: Value, start: int, later: int, first: bool) -> bool:
        if left is right:
            return True
        if left.type != right.type:
            return False
        if is_weight(left) or is_weight(right):
            return _argument_kind(left) is _argument_kind(right)
        offsets = self._relative_position(left, start), self._relative_position(right, later)
        if first and max(offsets) < 0:
            return True
        return offsets[0] == offsets[1] and left.index == right.index

    def _relative_position(self, value: Value, start: int) -> int:
        """Return the position of a value's producer relative to ``start``; inputs come before all nodes."""
        return -1 - len(self.nodes) if value.producer is None else self.position[value.producer] - start


def is_weight(value: Value) -> bool:
    """Return whether ``value`` is a parameter, a buffer, optimizer state or a constant."""
    return _argument_kind(value) not in (None, InputKind.INPUT)


def _argument_kind(value: Value) -> InputKind | None:
    return None if value.argument is None else value.argument.kind


def _is_same_op(left: OpNode, right: OpNode) -> bool:
    return (
        (left.op_type, left.operands, len(left.inputs)) == (right.op_type, right.operands, len(right.inputs))
        and [value.type for value in left.outputs] == [value.type for value in right.outputs]
        and left.attrs.keys() == right.attrs.keys()
        and all(same_literal(left.attrs[name], right.attrs[name]) for name in left.attrs)
        and dict(left.regions) == dict(right.regions)
    )
