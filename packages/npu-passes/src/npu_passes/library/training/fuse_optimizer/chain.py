"""The nodes that compute one step of one tensor, while they are recognised and afterwards."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_ir import OpNode, Value
from npu_passes.library.training.fuse_optimizer.matcher import (
    Call,
    Number,
    Reader,
    behind,
    is_number,
    one_minus,
)


class MismatchError(Exception):
    """What is read is not what is looked for."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A step of one parameter.

    Attributes:
        op_type: The op that computes such a step.
        tensors: By argument of this op, what the step reads; None for a list that stays empty.
        results: By argument, what it makes: the new content.
        numbers: By argument.
        flags: By argument.
        root: Computes the new parameter.
        nodes: All that compute the step, but for those that compute numbers.
    """

    op_type: str
    tensors: Mapping[str, Value | None]
    results: Mapping[str, Value]
    numbers: Mapping[str, Number]
    flags: Mapping[str, bool]
    root: OpNode
    nodes: tuple[OpNode, ...]

    @property
    def key(self) -> Hashable:
        """What chains have in common that one op can compute."""
        return self.op_type, tuple(self.numbers.values()), tuple(self.flags.values())


class Trail:
    """Follows the nodes of one chain from its end, and notes which they are."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._nodes: dict[OpNode, None] = {}

    @property
    def nodes(self) -> tuple[OpNode, ...]:
        return tuple(self._nodes)

    def take(self, value: object, name: str) -> tuple[Any, ...]:
        """Return the operands of the call of ``name`` that computes ``value``.

        Raises:
            MismatchError: Something else computes it.
        """
        found = self.look(value, name)
        if found is None:
            raise MismatchError
        return self.keep(found)

    def look(self, value: object, *names: str) -> Call | None:
        """Return the call of one of these names that computes ``value``, if one does; it is not part of the chain yet."""
        return self._reader.call(value, *names) if isinstance(value, Value) else None

    def keep(self, call: Call) -> tuple[Any, ...]:
        """Make a call part of the chain, and return its operands."""
        self._nodes.update(dict.fromkeys(call.nodes))
        return call.operands


def tensor(item: object) -> Value:
    """Return the tensor that an operand is, with nothing between that changes it not.

    Raises:
        MismatchError: It is a number.
    """
    if not isinstance(item, Value) or is_number(item):
        raise MismatchError
    return behind(item)[0]


def number(item: object) -> Number:
    """Return the number that an operand is.

    Raises:
        MismatchError: It is a tensor.
    """
    if not is_number(item):
        raise MismatchError
    return item  # type: ignore[return-value]


def complement(item: object) -> Number:
    """Return the number that an operand is 1 less of.

    Raises:
        MismatchError: It is no such number.
    """
    found = one_minus(item)
    if found is None:
        raise MismatchError
    return number(found)


def require(condition: bool) -> None:
    """Raise `MismatchError` where a condition of a chain does not hold."""
    if not condition:
        raise MismatchError
