"""Matching of the arguments of two graphs, independent of their names in the graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from npu_ir.core.node import InputKind, Value
from npu_ir.core.tensor_bytes import same_data

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def match_arguments(a: Graph, b: Graph) -> dict[Value, Value]:
    """Return the argument of ``b`` that corresponds to each argument of ``a``.

    1. Constants with the same content are matched, first those with the same target.
    2. Arguments with the same kind and target are matched; not in regions, whose inputs only have positions.
    3. Other arguments with the same target are matched across kinds: a parameter that became a constant.
    4. Remaining inputs are matched by position.
    """
    pairs: dict[Value, Value] = {}
    _pair_by(_kind_and_target, a.constants.values(), b.constants.values(), pairs, _has_same_content)
    _pair_by(
        lambda value: str(value.type), a.constants.values(), b.constants.values(), pairs, _has_same_content
    )
    if a.owner is None or b.owner is None:
        _pair_by(_kind_and_target, a.arguments, b.arguments, pairs)
    _pair_by(_target_key, a.arguments, b.arguments, pairs)
    taken = set(pairs.values())
    pairs.update(
        (value, other)
        for value, other in zip(a.inputs, b.inputs, strict=False)
        if value not in pairs and other not in taken
    )
    return pairs


def _pair_by(
    key: Callable[[Value], Hashable],
    mine: Iterable[Value],
    others: Iterable[Value],
    pairs: dict[Value, Value],
    fits: Callable[[Value, Value], bool] = lambda *_: True,
) -> None:
    """Pair each unpaired value with the first unpaired value that has the same key and fits."""
    taken = set(pairs.values())
    free: dict[Hashable, list[Value]] = {}
    for other in others:
        if other not in taken:
            free.setdefault(key(other), []).append(other)
    for value in mine:
        candidates = free.get(key(value), []) if value not in pairs else []
        partner = next((other for other in candidates if fits(value, other)), None)
        if partner is not None:
            pairs[value] = partner
            candidates.remove(partner)


def _has_same_content(value: Value, other: Value) -> bool:
    return value.type == other.type and same_data(value.data, other.data)


def _kind_and_target(value: Value) -> Hashable:
    return value.kind, value.target


def _target_key(value: Value) -> Hashable:
    """Return the target as a key; inputs get unique keys, as they are matched by position."""
    return (value,) if value.kind is InputKind.INPUT else value.target
