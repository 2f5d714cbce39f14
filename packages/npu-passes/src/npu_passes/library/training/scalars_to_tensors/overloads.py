"""Search for the overload of an op that takes tensors where another one takes numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Set
from dataclasses import dataclass

from npu_ir.ops.schema import ArgKind, OpSchema, SchemaArg, op_type_of, resolve, schema_of
from npu_passes._torch import OpOverload

_TENSORS = (ArgKind.TENSOR, ArgKind.OPTIONAL_TENSOR, ArgKind.TENSOR_LIST)


@dataclass(frozen=True, slots=True)
class Overload:
    """Overload that takes tensors.

    Attributes:
        op_type: Its full name.
        names: By argument of the other overload: the name of that argument here.
        tensors: The arguments that take a tensor here, by their name in the other overload.
        lists: The subset of ``tensors`` that take a list of tensors.
    """

    op_type: str
    names: dict[str, str]
    tensors: frozenset[str]
    lists: frozenset[str]


def overload_for(op_type: str, numbers: Set[str], plain: Set[str] = frozenset()) -> Overload | None:
    """Return the overload of an op that takes tensors for most of ``numbers``.

    Args:
        op_type: The op.
        numbers: Arguments that should be tensors.
        plain: Arguments that may be tensors, too: they are literals, or absent.
    """
    candidates = [
        item
        for item in _overloads(op_type)
        if item.tensors & numbers and item.tensors <= numbers | plain and item.lists <= numbers
    ]
    return max(candidates, key=lambda item: (len(item.tensors & numbers), -len(item.lists)), default=None)


@functools.cache
def _overloads(op_type: str) -> tuple[Overload, ...]:
    return tuple(_find_overloads(op_type))


def _find_overloads(op_type: str) -> Iterator[Overload]:
    op = resolve(op_type)
    if op is None:
        return
    schema = schema_of(op)
    packet = op.overloadpacket
    for name in packet.overloads():
        other: OpOverload = getattr(packet, name)
        if other is not op and not schema_of(other).writes:
            overload = _match_overload(schema, schema_of(other))
            if overload is not None:
                yield overload


def _match_overload(schema: OpSchema, other: OpSchema) -> Overload | None:
    """Return ``other`` as an overload of ``schema``; None if they differ in more than tensors for numbers."""
    if len(other.args) < len(schema.args) or any(
        not arg.has_default for arg in other.args[len(schema.args) :]
    ):
        return None
    pairs = list(zip(schema.args, other.args, strict=False))
    changed = {mine.name: theirs for mine, theirs in pairs if _takes_tensor_for_number(mine, theirs)}
    if not all(mine.name in changed or _is_same_argument(mine, theirs) for mine, theirs in pairs):
        return None
    return Overload(
        op_type_of(other.op),
        {mine.name: theirs.name for mine, theirs in pairs},
        frozenset(changed),
        frozenset(name for name, arg in changed.items() if arg.kind is ArgKind.TENSOR_LIST),
    )


def _takes_tensor_for_number(mine: SchemaArg, theirs: SchemaArg) -> bool:
    return mine.kind is ArgKind.PLAIN and theirs.kind in _TENSORS


def _is_same_argument(mine: SchemaArg, theirs: SchemaArg) -> bool:
    return mine.name == theirs.name and mine.kind is theirs.kind
