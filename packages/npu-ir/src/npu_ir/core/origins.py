"""Origins: the captured values that each value equals, maintained while the graph is rewritten.

The origin of a captured value is the value itself. A value that replaces another gains its origins, since
both are equal up to strides; any other new value has none. A node edited in place is assumed to compute the
same as before, unless the rewrite shows otherwise: if a value downstream of that node replaces another, the
values in between have changed, and lose their origins.
"""

from __future__ import annotations

from npu_ir.core.node import OpNode, Origin, Value


class OriginRecord:
    """The effects of one rewrite on the origins of values: gained origins, and nodes edited in place."""

    def __init__(self) -> None:
        self._gained: dict[Value, tuple[Origin, ...]] = {}
        self._changed: dict[OpNode, None] = {}

    def add(self, value: Value, other: Value) -> None:
        """Add the origins of ``other`` to those of ``value``."""
        origins = other.origins
        self._gained[value] = _merge(self._gained.get(value, ()), origins)
        value._origins = _merge(value.origins, origins)

    def note_change(self, node: OpNode) -> None:
        """Record that ``node`` was edited in place."""
        self._changed[node] = None

    def settle(self) -> None:
        """End a rewrite: remove invalid origins, in time linear in the changed region of the graph."""
        if self._changed and self._gained:
            reached = self._downstream_values()
            # Without a replacement downstream, the edits are taken to preserve every value (another layout).
            # With one, they moved the computation of the replaced value upstream: a convolution that absorbed
            # its batch norm equals the output of the batch norm, not its own former output.
            if not self._gained.keys().isdisjoint(reached):
                for value in reached:
                    value._origins = self._gained.get(value, ())
        self._gained.clear()
        self._changed.clear()

    def _downstream_values(self) -> dict[Value, None]:
        """Return the values downstream of edited nodes, up to and including replacement values."""
        reached: dict[Value, None] = {}
        pending = [value for node in self._changed for value in node.outputs]
        while pending:
            value = pending.pop()
            if value not in reached:
                reached[value] = None
                if value not in self._gained:
                    pending += [output for user in value.users for output in user.outputs]
        return reached


def share_origin(value: Value, other: Value) -> bool:
    """Return whether two values are known to be equal, up to strides: they share an origin."""
    return value is other or not set(value.origins).isdisjoint(other.origins)


def _merge(first: tuple[Origin, ...], second: tuple[Origin, ...]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys((*first, *second))) if first and second else first or second
