"""How long the memory of each value is needed, and how much of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npu_ir import GraphError, TensorType, Value
from npu_runtime.memory import Memory
from npu_runtime.steps import Step


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The memory of one value, and of the others that lie in it.

    Attributes:
        value: The name of the value that the memory was made for.
        views: The names of the others.
        bytes: How much it is.
        first: The number of the step that makes it.
        last: The number of the last step that needs it; the number of steps where it is returned.
    """

    value: str
    views: tuple[str, ...]
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of one call: what its steps make. Inputs and weights do not count, nor what a kernel needs inside.

    Attributes:
        lifetimes: In the order in which the memory is made.
        steps: For each step the name of its node.
        live_bytes: What is needed during each step.
        lower_bound_bytes: What the most demanding step needs by itself, its inputs and outputs: however the values of
            these steps are placed, they need no less.
    """

    lifetimes: tuple[Lifetime, ...]
    steps: tuple[str, ...]
    live_bytes: tuple[int, ...]
    lower_bound_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most that is needed during one step."""
        return max(self.live_bytes, default=0)

    @property
    def peak_step(self) -> str:
        """The node that runs when the peak is reached; empty where there are no steps."""
        return self.steps[self.live_bytes.index(self.peak_bytes)] if self.steps else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        totals = {"peak_bytes": self.peak_bytes, "peak_step": self.peak_step}
        return {**totals, **asdict(self)}

    def __str__(self) -> str:
        rows = [f"peak {self.peak_bytes:,} bytes at {self.peak_step or 'no step'}"]
        rows.append(f"lower bound {self.lower_bound_bytes:,} bytes")
        width = max((len(item.value) for item in self.lifetimes), default=5)
        rows.append(f"{'value':<{width}}  {'bytes':>12}  steps")
        for item in self.lifetimes:
            shared = f"  shared by {', '.join(item.views)}" if item.views else ""
            rows.append(f"{item.value:<{width}}  {item.bytes:>12,}  {item.first} to {item.last}{shared}")
        return "\n".join(rows)


def plan_memory(steps: Sequence[Step], memory: Memory) -> MemoryPlan:
    """Return the memory that steps need.

    Args:
        steps: In order.
        memory: Which of their values share memory.

    Raises:
        GraphError: Sizes are symbolic.
    """
    for value in (value for step in steps for value in step.outputs if value.type.symbols):
        raise GraphError(
            f"%{value.name} is {value.type}: with symbolic sizes, its memory depends on the call",
            fix="specialize the graph first: graph.specialize({...})",
        )
    owners = _owners(steps, memory)
    made = {value: index for index, step in enumerate(steps) for value in step.outputs}
    lifetimes = []
    for owner, values in owners.items():
        last = max(memory.last_use[value] for value in values)
        views = tuple(value.name for value in values if value is not owner)
        lifetimes.append(Lifetime(owner.name, views, _bytes(owner), made[owner], last))
    live = [0] * len(steps)
    for item in lifetimes:
        for index in range(item.first, min(item.last + 1, len(steps))):
            live[index] += item.bytes
    of_value = {value: owner for owner, values in owners.items() for value in values}
    return MemoryPlan(
        lifetimes=tuple(lifetimes),
        steps=tuple(step.node.name for step in steps),
        live_bytes=tuple(live),
        lower_bound_bytes=max((_needed(step, of_value) for step in steps), default=0),
    )


def _owners(steps: Sequence[Step], memory: Memory) -> dict[Value, list[Value]]:
    """Return the values that a call makes, by the value whose memory they lie in."""
    owner_of: dict[Value, Value] = {}
    made = {value for step in steps for value in step.outputs}
    outside = {memory.group(value) for value in memory.last_use if value not in made}
    owners: dict[Value, list[Value]] = {}
    for step in steps:
        for value in step.outputs:
            group = memory.group(value)
            if group in outside:
                continue
            before = step.overwrites
            owner = owner_of.get(before) if before is not None else None
            owner_of[value] = owner_of.setdefault(group, owner or value)
            owners.setdefault(owner_of[value], []).append(value)
    return owners


def _needed(step: Step, owners: dict[Value, Value]) -> int:
    return sum(map(_bytes, {owners[value] for value in (*step.inputs, *step.outputs) if value in owners}))


def _bytes(value: Value) -> int:
    if not isinstance(value.type, TensorType):
        return 0
    # Up to the last element: strides may leave gaps.
    reach = sum((size - 1) * stride for size, stride in zip(value.type.sizes, value.type.steps, strict=True))
    return (reach + 1) * value.type.dtype.itemsize if value.type.numel else 0
