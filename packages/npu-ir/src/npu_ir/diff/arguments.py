"""Pairs of arguments of two graphs that are the same, though one of them may have another name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from npu_ir.core.node import InputKind, Value
from npu_ir.core.tensor_bytes import same_data

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def match_arguments(a: Graph, b: Graph) -> dict[Value, Value]:
    """Return which argument of ``b`` each argument of ``a`` is.

    1. A constant is the constant with the same content, of several the one with the same name.
    2. What stands for the same outside is the same; the inputs of a region have their places only.
    3. What has the same name outside is the same, of whatever kind: a parameter that became a constant.
    4. An input is the input in the same place.
    """
    pairs: dict[Value, Value] = {}
    _pair_by(_meaning, a.constants.values(), b.constants.values(), pairs, _same_content)
    _pair_by(_type, a.constants.values(), b.constants.values(), pairs, _same_content)
    if a.owner is None or b.owner is None:
        _pair_by(_meaning, a.arguments, b.arguments, pairs)
    _pair_by(_target, a.arguments, b.arguments, pairs)
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
    """Pair values that are in no pair, and have the same key; the first that fits."""
    taken = set(pairs.values())
    free: dict[Hashable, list[Value]] = {}
    for other in others:
        if other not in taken:
            free.setdefault(key(other), []).append(other)
    for value in mine:
        candidates = free.get(key(value), []) if value not in pairs else []
        found = next((other for other in candidates if fits(value, other)), None)
        if found is not None:
            pairs[value] = found
            candidates.remove(found)


def _same_content(value: Value, other: Value) -> bool:
    assert value.argument is not None
    assert other.argument is not None
    return value.type == other.type and same_data(value.argument.data, other.argument.data)


def _type(value: Value) -> Hashable:
    return str(value.type)


def _meaning(value: Value) -> Hashable:
    assert value.argument is not None
    return value.argument.kind, value.argument.target


def _target(value: Value) -> Hashable:
    """Return the name outside; an input stands for itself alone."""
    assert value.argument is not None
    is_input = value.argument.kind is InputKind.INPUT
    return (value,) if is_input else value.argument.target
