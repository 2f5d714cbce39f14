"""Buffers of a planned program: kinds of values, allocations, and the bind-time actions."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from npu_ir import TensorType, Value
from npu_ir.core.storage import has_overlapping_elements, span_bytes
from npu_runtime.lowering.instruction import Instruction


class BufferKind(str, enum.Enum):
    """The kind of a value in a planned program."""

    INPUT = "input"  # a fixed buffer that each call copies into
    STATE = "state"  # a parameter, buffer or optimizer state, in its own memory
    CONSTANT = "constant"  # the same in each run
    ARENA = "arena"  # at a fixed offset of the arena
    VIEW = "view"  # a view of one of those; the tensor is created once
    DYNAMIC = "made"  # allocated by the op in each run
    SCALAR = "number"  # a Python number


@dataclass(eq=False, slots=True)
class Allocation:
    """An allocation: one contiguous range of fixed memory.

    Attributes:
        owner: The value that it is allocated for.
        kind: INPUT, STATE, CONSTANT or ARENA.
        first: The number of the instruction that writes it first; -1 if it is written before the first one.
        values: The values that reside in it, or may do so.
        offset: The offset in the arena, in bytes.
    """

    owner: Value
    kind: BufferKind
    first: int = -1
    values: list[Value] = field(default_factory=list)
    offset: int = 0

    @property
    def bytes(self) -> int:
        return span_bytes(self.owner.type)


@dataclass(frozen=True, slots=True)
class Allocate:
    """Bind-time action: a value gets the whole of an allocation."""

    value: Value
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Alias:
    """Bind-time action: a value gets the tensor of another value of the same type."""

    value: Value
    other: Value


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Bind-time action: an instruction is run once, for views and for constant folding."""

    instruction: Instruction


# An action of binding.
Action: TypeAlias = Allocate | Alias | Evaluate


def dense_type(type: TensorType) -> TensorType:
    """Return a type without overlapping elements: the type itself, or else a contiguous one."""
    return TensorType(type.shape, type.dtype) if has_overlapping_elements(type) else type
