"""Buffers of a planned program: kinds of values, allocations, bind-time actions, and their assignment."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

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


Action: TypeAlias = Allocate | Alias | Evaluate


@dataclass(slots=True)
class BufferAssignment:
    """A buffer assignment, while it is built and afterwards.

    Attributes:
        actions: The actions of binding, in order.
        allocations: All allocations, in the order in which they are made.
        kinds: The kind of each value.
        allocations_of: The allocations in which a value resides, or may reside.
        reasons: The reasons for values that ops allocate in each run.
        allocated: The values among these that may take new memory; known views take none.
        compute: The instructions of the compute phase.
        commit: The instructions of the commit phase.
        staging_copies: Staging copies by the value that they replace as a result or new content.
        functional: The instructions in whose place others write results of the graph into planned memory, by
            these.
        last_use: The number of the last instruction that needs a value.
    """

    actions: list[Action] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    kinds: dict[Value, BufferKind] = field(default_factory=dict)
    allocations_of: dict[Value, tuple[Allocation, ...]] = field(default_factory=dict)
    reasons: dict[Value, str] = field(default_factory=dict)
    allocated: list[Value] = field(default_factory=list)
    compute: list[Instruction] = field(default_factory=list)
    commit: list[Instruction] = field(default_factory=list)
    staging_copies: dict[Value, Value] = field(default_factory=dict)
    functional: dict[Instruction, Instruction] = field(default_factory=dict)
    last_use: dict[Value, int] = field(default_factory=dict)

    def last_use_of(self, allocation: Allocation) -> int:
        """Return the number of the last instruction that needs an allocation."""
        return max(self.last_use[value] for value in allocation.values)

    def is_fixed(self, value: Value) -> bool:
        """Return whether a value is the same tensor object in each run."""
        return self.kinds[value] not in (BufferKind.DYNAMIC, BufferKind.SCALAR)

    def assign_new(self, value: Value, kind: BufferKind, first: int = -1) -> None:
        """Assign a value to a new allocation, which it fills."""
        allocation = Allocation(value, kind, first)
        self.allocations.append(allocation)
        self.kinds[value] = kind
        self.actions.append(Allocate(value, allocation))
        self.assign_existing(value, [allocation])

    def assign_existing(self, value: Value, allocations: Sequence[Allocation]) -> None:
        """Record the allocations in which a value resides, or may reside."""
        self.last_use.setdefault(value, -1)
        self.allocations_of[value] = tuple(allocations)
        for allocation in allocations:
            allocation.values.append(value)

    def add_staging_copy(self, value: Value, first: int, last: int) -> Value:
        """Return a new value in the arena, for a staging copy of another one."""
        type = dense_type(value.tensor_type)
        copy = Value(-1 - len(self.allocations), f"{value.name}_copy", type)
        self.last_use[copy] = last
        self.assign_new(copy, BufferKind.ARENA, first)
        return copy


def is_plannable(value: Value) -> bool:
    """Return whether a value is a tensor whose memory can be planned."""
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def dense_type(type: TensorType) -> TensorType:
    """Return a type without overlapping elements: the type itself, or else a contiguous one."""
    return TensorType(type.shape, type.dtype) if has_overlapping_elements(type) else type
