"""Where values lie: pieces of fixed memory, and what binding makes of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from npu_ir import TensorType, Value
from npu_ir.graph.binding import overlap
from npu_runtime.lowering.instruction import Step


class Kind(str, enum.Enum):
    """What a value is in a planned program."""

    INPUT = "input"  # fixed memory that each call copies into
    STATE = "state"  # a parameter, buffer or optimizer state, in its own memory
    CONSTANT = "constant"  # the same in each run
    ARENA = "arena"  # a fixed place in the arena
    VIEW = "view"  # of one of those; a tensor that is made once
    MADE = "made"  # allocated in each run
    NUMBER = "number"  # a Python number


@dataclass(eq=False, slots=True)
class Piece:
    """A piece of fixed memory.

    Attributes:
        owner: The value that it was planned for.
        kind: INPUT, STATE, CONSTANT or ARENA.
        first: The number of the step that writes it first; -1 where it is there before.
        values: Those that lie in it, or that may do so.
        offset: Into the arena, in bytes.
    """

    owner: Value
    kind: Kind
    first: int = -1
    values: list[Value] = field(default_factory=list)
    offset: int = 0

    @property
    def bytes(self) -> int:
        return bytes_of(self.owner)


@dataclass(frozen=True, slots=True)
class Whole:
    """A value is the whole of a piece of memory."""

    value: Value
    piece: Piece


@dataclass(frozen=True, slots=True)
class Same:
    """A value lies where another of the same type lies."""

    value: Value
    other: Value


@dataclass(frozen=True, slots=True)
class Once:
    """The outputs of a step are made once: views, and what depends on constants only."""

    step: Step


# What binding does, in order.
Action: TypeAlias = Whole | Same | Once


def bytes_of(value: Value) -> int:
    """Return how many bytes a tensor spans, gaps included; 0 for anything else."""
    type = value.type
    if not isinstance(type, TensorType) or not type.numel:
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(type.sizes, type.steps, strict=True))
    return (reach + 1) * type.dtype.itemsize


def dense_type(type: TensorType) -> TensorType:
    """Return a type of which each element has memory of its own: the same one, mostly."""
    return TensorType(type.shape, type.dtype) if overlap(type.sizes, type.steps) else type
