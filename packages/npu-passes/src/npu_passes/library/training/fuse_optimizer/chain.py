"""Nodes that compute the step of one parameter, and the state of their match."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_ir import OpNode, Value
from npu_passes.library.training.fuse_optimizer.operands import (
    Call,
    Number,
    Reader,
    complement_of,
    is_number,
    strip_aliases,
)


class MismatchError(Exception):
    """Raised where the graph differs from the pattern; ends one match."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Step of one parameter.

    Attributes:
        op_type: The op that computes such a step.
        tensors: By argument of this op, the tensors that the step reads; None for a list that stays empty.
        results: By argument, the new content of these tensors.
        numbers: By argument, the hyperparameters.
        flags: By argument, the boolean options.
        root: The node that computes the new parameter.
        nodes: All nodes that compute the step, except for those that compute numbers.
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
        """Key that is equal for chains that one op can compute."""
        return self.op_type, tuple(self.numbers.values()), tuple(self.flags.values())


class Trail:
    """Nodes of one chain, collected backwards from its end."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._nodes: dict[OpNode, None] = {}

    @property
    def nodes(self) -> tuple[OpNode, ...]:
        return tuple(self._nodes)

    def take(self, value: object, name: str) -> tuple[Any, ...]:
        """Add the call of ``name`` that computes ``value`` to the chain; return its operands.

        Raises:
            MismatchError: Another op computes it.
        """
        call = self.look(value, name)
        if call is None:
            raise MismatchError
        return self.keep(call)

    def look(self, value: object, *names: str) -> Call | None:
        """Return the call of one of these ops that computes ``value``, without adding it; None otherwise."""
        return self._reader.call(value, *names) if isinstance(value, Value) else None

    def keep(self, call: Call) -> tuple[Any, ...]:
        """Add a call to the chain; return its operands."""
        self._nodes.update(dict.fromkeys(call.nodes))
        return call.operands


def require_tensor(item: object) -> Value:
    """Return the tensor operand behind detach and alias nodes.

    Raises:
        MismatchError: The operand is a number.
    """
    if not isinstance(item, Value) or is_number(item):
        raise MismatchError
    return strip_aliases(item)[0]


def require_number(item: object) -> Number:
    """Return an operand that is a number.

    Raises:
        MismatchError: It is a tensor.
    """
    if not is_number(item):
        raise MismatchError
    return item  # type: ignore[return-value]


def require_complement(item: object) -> Number:
    """Return ``x`` for an operand that is ``1 - x``.

    Raises:
        MismatchError: The operand is not of this form.
    """
    rest = complement_of(item)
    if rest is None:
        raise MismatchError
    return require_number(rest)


def require(condition: bool) -> None:
    """Raise `MismatchError` unless a condition of the pattern holds."""
    if not condition:
        raise MismatchError
