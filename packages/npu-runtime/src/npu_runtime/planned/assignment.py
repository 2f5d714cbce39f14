"""The buffer assignment of a planned program: allocations, aliases, and the instructions of both phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from npu_ir import Value
from npu_ir.core.types import TensorType
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.planned.buffers import Action, Allocate, Allocation, BufferKind, dense_type


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
    last_use: dict[Value, int] = field(default_factory=dict)

    def last_use_of(self, allocation: Allocation) -> int:
        """Return the number of the last instruction that needs an allocation."""
        return max(self.last_use[value] for value in allocation.values)

    def is_fixed(self, value: Value) -> bool:
        """Return whether a value is the same tensor object in each run."""
        return self.kinds[value] not in (BufferKind.DYNAMIC, BufferKind.SCALAR)

    def assign_new(self, value: Value, allocation: Allocation) -> None:
        """Assign a value to a new allocation, which it fills."""
        self.allocations.append(allocation)
        self.kinds[value] = allocation.kind
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
        self.assign_new(copy, Allocation(copy, BufferKind.ARENA, first=first))
        return copy


def is_plannable(value: Value) -> bool:
    """Return whether a value is a tensor whose memory can be planned."""
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided
