"""Which values of two graphs are the same, though passes have changed one of them or both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npu_ir import Graph, Origin, TensorType, Value


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of one graph, and a value of another that stands for the same.

    Attributes:
        order: Its place in the first graph, then in the other.
        left: Of the first graph.
        right: Of the other.
    """

    order: tuple[int, int]
    left: Value
    right: Value


def align(left: Graph, right: Graph) -> list[Pair]:
    """Return the values that nodes of both graphs produce and that stand for the same, in the order of ``left``.

    Both graphs say what their values stand for in the graph that was captured (`Value.origins`), by name and by place in the
    model. A value may have several counterparts, and be the counterpart of several.

    Where a graph does not keep that, as in text form, names are all there is: a value stands for the one of the same name
    if the same op computes it from what stands for the same.
    """
    alignment = _Alignment(left, right)
    return [
        Pair((index, place), value, other)
        for index, value in enumerate(_produced(left))
        for place, other in alignment.add(value)
    ]


def _produced(graph: Graph) -> Iterator[Value]:
    return (value for node in graph.nodes for value in node.outputs)


class _Alignment:
    """Finds the counterparts of values, one by one in the order of their graph."""

    def __init__(self, left: Graph, right: Graph) -> None:
        self._is_recorded = left.tracks_origins and right.tracks_origins
        self._found: set[tuple[Value, Value]] = set()
        self._by_origin: dict[str, list[tuple[int, Value, Origin]]] = {}
        for place, value in enumerate(_produced(right)):
            for origin in value.origins:
                self._by_origin.setdefault(origin.name, []).append((place, value, origin))

    def add(self, value: Value) -> list[tuple[int, Value]]:
        """Return the counterparts of a value with their places, in order."""
        found = {
            other: place
            for mine in value.origins
            for place, other, origin in self._by_origin.get(mine.name, ())
            if _may_be_one(mine, origin) and self._may_stand_for(value, other)
        }
        self._found.update((value, other) for other in found)
        return sorted(((place, other) for other, place in found.items()), key=lambda item: item[0])

    def _may_stand_for(self, value: Value, other: Value) -> bool:
        """Whether nothing speaks against it that two values of the same origin are the same."""
        if not _fits(value, other):
            return False
        mine, others = value.producer, other.producer
        if not (value.is_original and other.is_original) or mine is None or others is None:
            return True
        if mine.op_type != others.op_type or value.index != other.index:
            return False
        return self._is_recorded or (
            mine.operands == others.operands
            and len(mine.inputs) == len(others.inputs)
            and all(map(self._is_same_input, mine.inputs, others.inputs))
        )

    def _is_same_input(self, left: Value, right: Value) -> bool:
        if left.argument is None or right.argument is None:
            return (left, right) in self._found
        return (left.argument.kind, left.argument.target) == (right.argument.kind, right.argument.target)


def _may_be_one(origin: Origin, other: Origin) -> bool:
    """Whether origins of the same name are from the same line of the same module, as far as is known."""
    places = [(item.module, item.source) for item in (origin, other)]
    return places[0] == places[1] or ("", "") in places


def _fits(left: Value, right: Value) -> bool:
    if isinstance(left.type, TensorType) and isinstance(right.type, TensorType):
        return left.type.dtype == right.type.dtype and left.type.rank == right.type.rank
    if isinstance(left.type, TensorType) or isinstance(right.type, TensorType):
        return False
    return left.type.kind == right.type.kind
