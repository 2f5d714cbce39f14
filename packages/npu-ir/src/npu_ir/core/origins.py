"""The values of the captured graph that a value stands for, kept while the graph is rewritten.

A value of a captured graph stands for itself. What takes the place of a value stands for the same, in other strides
perhaps; what is made besides stands for nothing. A node that is edited in place is believed to go on computing the
same, unless the rewrite says otherwise: where it puts a value behind that node in the place of another, all on the way there
has changed.
"""

from __future__ import annotations

from npu_ir.core.node import OpNode, Origin, Value


class OriginRecord:
    """What one rewrite of a graph has done to what its values stand for."""

    def __init__(self) -> None:
        self._gained: dict[Value, tuple[Origin, ...]] = {}
        self._changed: dict[OpNode, None] = {}

    def add(self, value: Value, other: Value) -> None:
        """Let ``value`` stand for what ``other`` stands for, too."""
        origins = other.origins
        self._gained[value] = _merged(self._gained.get(value, ()), origins)
        value._origins = _merged(value.origins, origins)

    def note_change(self, node: OpNode) -> None:
        """Note that ``node`` was edited in place."""
        self._changed[node] = None

    def settle(self) -> None:
        """End a rewrite: take from values what they do not stand for any more; linear in what has changed."""
        if self._changed and self._gained:
            reached = self._reached()
            if not self._gained.keys().isdisjoint(reached):
                for value in reached:
                    value._origins = self._gained.get(value, ())
        self._gained.clear()
        self._changed.clear()

    def _reached(self) -> dict[Value, None]:
        """Return the values behind nodes that have changed, as far as those that took the place of others."""
        reached: dict[Value, None] = {}
        pending = [value for node in self._changed for value in node.outputs]
        while pending:
            value = pending.pop()
            if value not in reached:
                reached[value] = None
                if value not in self._gained:
                    pending += [output for user in value.users for output in user.outputs]
        return reached


def stand_for_the_same(value: Value, other: Value) -> bool:
    """Whether two values are known to be the same, up to strides."""
    return value is other or not set(value.origins).isdisjoint(other.origins)


def _merged(first: tuple[Origin, ...], second: tuple[Origin, ...]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys((*first, *second))) if first and second else first or second
