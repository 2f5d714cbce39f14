"""Which values of two graphs are the same, though passes have changed one of them or both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npu_ir import Graph, OpNode, TensorType, Value


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

    Both graphs say what their values stand for in the graph that was captured (`Value.origins`). A value may have several
    counterparts, and be the counterpart of several.

    Where a graph does not keep that, as in text form, names are all there is: a value stands for the one of the same name if
    nodes of the same op compute them, in the same place of the model as far as is known, from what stands for the same.
    """
    pairs: list[Pair] = []
    counterparts: dict[Value, set[Value]] = {}
    standing: dict[str, dict[Value, int]] = {}
    for place, value in enumerate(_produced(right)):
        for origin in value.origins:
            standing.setdefault(origin, {})[value] = place
    by_name = not (left.tracks_origins and right.tracks_origins)
    for index, value in enumerate(_produced(left)):
        found = {
            other: place for origin in value.origins for other, place in standing.get(origin, {}).items()
        }
        for other, place in found.items():
            if _fits(value, other) and _agree(value, other, counterparts, by_name=by_name):
                counterparts.setdefault(value, set()).add(other)
                pairs.append(Pair((index, place), value, other))
    return sorted(pairs, key=lambda pair: pair.order)


def _produced(graph: Graph) -> Iterator[Value]:
    return (value for node in graph.nodes for value in node.outputs)


def _fits(left: Value, right: Value) -> bool:
    if isinstance(left.type, TensorType) and isinstance(right.type, TensorType):
        return left.type.dtype == right.type.dtype and left.type.rank == right.type.rank
    if isinstance(left.type, TensorType) or isinstance(right.type, TensorType):
        return False
    return left.type.kind == right.type.kind


def _agree(left: Value, right: Value, counterparts: dict[Value, set[Value]], *, by_name: bool) -> bool:
    """Whether nothing speaks against it that both stand for what they are called."""
    if not (_is_itself(left) and _is_itself(right)):
        return True
    mine, other = left.producer, right.producer
    assert mine is not None
    assert other is not None
    if mine.op_type != other.op_type or left.index != right.index or not _may_be_in_one_place(mine, other):
        return False
    return not by_name or _read_the_same(mine, other, counterparts)


def _is_itself(value: Value) -> bool:
    return value.origins == (value.name,)


def _may_be_in_one_place(node: OpNode, other: OpNode) -> bool:
    """Whether nodes are from the same line of the same module, as far as is known: text says nothing of it."""
    places = [(item.provenance.module, item.provenance.source) for item in (node, other)]
    return places[0] == places[1] or ("", "") in places


def _read_the_same(node: OpNode, other: OpNode, counterparts: dict[Value, set[Value]]) -> bool:
    return node.operands == other.operands and all(
        right in counterparts.get(left, ()) if left.argument is None else _is_same_argument(left, right)
        for left, right in zip(node.inputs, other.inputs, strict=True)
    )


def _is_same_argument(left: Value, right: Value) -> bool:
    if left.argument is None or right.argument is None:
        return False
    return (left.argument.kind, left.argument.target) == (right.argument.kind, right.argument.target)
