"""Which values of two graphs are the same, though passes have changed one of them or both."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from npu_ir import Graph, OpNode, TensorType, Value

_Twins: TypeAlias = "Sequence[tuple[OpNode, OpNode]]"


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of one graph, and the value of another that stands for the same.

    Attributes:
        order: Its place in the first graph.
        left: Of the first graph.
        right: Of the other.
    """

    order: int
    left: Value
    right: Value


def align(left: Graph, right: Graph) -> list[Pair]:
    """Return the values that nodes of both graphs produce, in the order of ``left``.

    1. Nodes of the same name, op and place in the model are the same node.
    2. What both graphs return or store in the same place is the same, and what the same node reads in the same place.
    3. A node stands for the last of those it was fused from; where several do, it is the last that has the type.
    4. Where nothing else is ``relu``, what a pass made anew as ``relu#1`` is.
    5. Where one node of a line of the model is left over on the left, and several on the right come from there, they
       were put in its place, and the last of them that has its type stands for it.
    """
    others = {node.name: node for node in right.nodes}
    twins = [(node, others[node.name]) for node in left.nodes if _is_same(node, others.get(node.name))]
    found: dict[Value, Value] = {}
    for mine, other in twins:
        found.update(zip(mine.outputs, other.outputs, strict=True))
    for mine_value, value in (*_ends(left, right), *_operands(twins)):
        if mine_value.producer is not None and value.producer is not None and _fits(mine_value, value):
            found.setdefault(mine_value, value)
    _add_by(_origin, left.nodes, right.nodes, found)
    _add_by(_old_name, left.nodes, right.nodes, found)
    _add_by(_place, _alone(left.nodes, found), right.nodes, found)
    order = {value: index for index, value in enumerate(_produced(left))}
    pairs = [Pair(order[value], value, other) for value, other in found.items()]
    return sorted(pairs, key=lambda pair: pair.order)


def _produced(graph: Graph) -> Iterator[Value]:
    return (value for node in graph.nodes for value in node.outputs)


def _is_same(node: OpNode, other: OpNode | None) -> bool:
    """Whether nodes of the same name are the same: a pass may give a new one the name of one that is gone."""
    return (
        other is not None
        and node.op_type == other.op_type
        and node.provenance.fused_from == other.provenance.fused_from
        and _same_place(node, other)
        and len(node.outputs) == len(other.outputs)
    )


def _same_place(node: OpNode, other: OpNode) -> bool:
    """Whether nodes are from the same line of the same module, as far as is known: text says nothing of it."""
    places = [(item.provenance.module, item.provenance.source) for item in (node, other)]
    return places[0] == places[1] or ("", "") in places


def _fits(left: Value, right: Value) -> bool:
    if isinstance(left.type, TensorType):
        return left.type.same_shape_and_dtype(right.type)
    return not isinstance(right.type, TensorType) and left.type.kind == right.type.kind


def _ends(left: Graph, right: Graph) -> Iterator[tuple[Value, Value]]:
    """Yield what both return at the same place, and store into the same input."""
    for leaf, other in zip(left.results[1], right.results[1], strict=False):
        if isinstance(leaf, Value) and isinstance(other, Value):
            yield leaf, other
    targets = {target.name: value for target, value in right.updates.items()}
    for target, value in left.updates.items():
        if target.name in targets:
            yield value, targets[target.name]


def _operands(twins: _Twins) -> Iterator[tuple[Value, Value]]:
    """Yield what the same node reads in both graphs."""
    for node, other in twins:
        if node.operands == other.operands and len(node.inputs) == len(other.inputs):
            yield from zip(node.inputs, other.inputs, strict=True)


def _add_by(
    key: Callable[[OpNode], Hashable],
    left: Iterable[OpNode],
    right: Iterable[OpNode],
    found: dict[Value, Value],
) -> None:
    """Align nodes that are left over on both sides and have the same key, each with the last one that fits."""
    taken = set(found.values())
    spare: dict[Hashable, list[OpNode]] = {}
    for node in right:
        if taken.isdisjoint(node.outputs) and key(node) is not None:
            spare.setdefault(key(node), []).append(node)
    for node in left:
        if not found.keys().isdisjoint(node.outputs):
            continue
        fitting = [other for other in spare.get(key(node), ()) if _may_stand_for(node, other)]
        if fitting:
            found.update(zip(node.outputs[:1], fitting[-1].outputs[:1], strict=True))


def _may_stand_for(node: OpNode, other: OpNode) -> bool:
    if not (node.outputs and other.outputs and _fits(node.outputs[0], other.outputs[0])):
        return False
    is_fused = bool(node.provenance.fused_from or other.provenance.fused_from)
    return is_fused or _same_place(node, other)


def _origin(node: OpNode) -> Hashable:
    """Return the name of the node that this one stands for."""
    return (node.provenance.fused_from or (node.name,))[-1]


def _old_name(node: OpNode) -> Hashable:
    """Return the name of the node that this one stands for, without what was added to make it unique."""
    name = (node.provenance.fused_from or (node.name,))[-1]
    base, _, number = name.rpartition("#")
    return base if number.isdigit() else name


def _place(node: OpNode) -> Hashable:
    """Return the line of the model that a node is from; None where nobody knows, or it stands for several."""
    place = node.provenance
    return None if place.fused_from or not place.source else (place.module, place.source)


def _alone(nodes: Iterable[OpNode], found: dict[Value, Value]) -> list[OpNode]:
    """Return the nodes that are left over, and are the only one in their place."""
    by_place: dict[Hashable, list[OpNode]] = {}
    for node in nodes:
        if found.keys().isdisjoint(node.outputs) and _place(node) is not None:
            by_place.setdefault(_place(node), []).append(node)
    return [group[0] for group in by_place.values() if len(group) == 1]
