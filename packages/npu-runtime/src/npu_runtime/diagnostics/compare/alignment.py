"""Alignment of the values of two graphs that passes may have changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npu_ir import Graph, Origin, TensorType, Value


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of one graph, its counterpart in another, and the positions of both in their graphs."""

    order: tuple[int, int]
    left: Value
    right: Value


def align(left: Graph, right: Graph) -> list[Pair]:
    """Return the pairs of corresponding values that nodes of both graphs produce, in the order of ``left``.

    Values correspond by their origins in the captured graph (`Value.origins`): names, and locations in the
    model. A value may have several counterparts, and be the counterpart of several.

    A graph that does not track origins, such as one read from text, has names only: values of the same name
    correspond if the same op computes them from corresponding inputs.
    """
    alignment = _Alignment(left, right)
    return [
        Pair((index, position), value, other)
        for index, value in enumerate(_node_outputs(left))
        for position, other in alignment.find_counterparts(value)
    ]


def _node_outputs(graph: Graph) -> Iterator[Value]:
    return (value for node in graph.nodes for value in node.outputs)


class _Alignment:
    """The counterparts of values, found one by one in the order of their graph."""

    def __init__(self, left: Graph, right: Graph) -> None:
        self._is_recorded = left.tracks_origins and right.tracks_origins
        self._matches: set[tuple[Value, Value]] = set()
        self._by_origin: dict[str, list[tuple[int, Value, Origin]]] = {}
        for position, value in enumerate(_node_outputs(right)):
            for origin in value.origins:
                self._by_origin.setdefault(origin.name, []).append((position, value, origin))

    def find_counterparts(self, value: Value) -> list[tuple[int, Value]]:
        """Return the counterparts of a value with their positions, in order."""
        matches = {
            other: position
            for mine in value.origins
            for position, other, origin in self._by_origin.get(mine.name, ())
            if _may_be_same_origin(mine, origin) and self._may_correspond(value, other)
        }
        self._matches.update((value, other) for other in matches)
        return sorted(((position, other) for other, position in matches.items()), key=lambda item: item[0])

    def _may_correspond(self, value: Value, other: Value) -> bool:
        """Return whether two values of the same origin can correspond: by type, op and inputs."""
        if not _has_compatible_type(value, other):
            return False
        mine, others = value.producer, other.producer
        if not (value.is_original and other.is_original) or mine is None or others is None:
            return True  # a pass computes one of them otherwise: only its recorded origin identifies it
        if mine.op_type != others.op_type or value.index != other.index:
            return False
        return self._is_recorded or (
            mine.operands == others.operands
            and len(mine.inputs) == len(others.inputs)
            and all(map(self._is_same_input, mine.inputs, others.inputs))
        )

    def _is_same_input(self, left: Value, right: Value) -> bool:
        if left.argument is None or right.argument is None:
            return (left, right) in self._matches
        return (left.argument.kind, left.argument.target) == (right.argument.kind, right.argument.target)


def _may_be_same_origin(origin: Origin, other: Origin) -> bool:
    """Return whether origins of the same name have the same module and line, or one has neither."""
    locations = [(item.module, item.source) for item in (origin, other)]
    return locations[0] == locations[1] or ("", "") in locations


def _has_compatible_type(left: Value, right: Value) -> bool:
    if isinstance(left.type, TensorType) and isinstance(right.type, TensorType):
        return left.type.dtype == right.type.dtype and left.type.rank == right.type.rank
    if isinstance(left.type, TensorType) or isinstance(right.type, TensorType):
        return False
    return left.type.kind == right.type.kind
