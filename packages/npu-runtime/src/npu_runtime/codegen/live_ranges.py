"""Liveness report: the live range of each value's memory, and the peak of a call."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npu_ir import GraphError, TensorType, Value
from npu_ir.core.storage import span_bytes
from npu_runtime.lowering.instruction import Instruction

_RETURN = "return"
# They copy the whole storage of their input, and return the same view of the copy (torch 2.13).
_COPY_ALL = (
    "aten.copy.default",
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
    "aten.diagonal_scatter.default",
    "aten.as_strided_scatter.default",
)


@dataclass(frozen=True, slots=True)
class LiveRange:
    """The live range of one allocation, with the values that alias it.

    Attributes:
        value: The name of the value that it is allocated for.
        views: The names of its aliases.
        bytes: Its size.
        first: The number of the instruction that allocates it.
        last: The number of the last instruction that needs it; the number of instructions if it is returned.
        may_share: Values that it may alias instead; it is counted as if it did not. Empty if it certainly
            aliases none.
        reason: The reason for the uncertainty; empty if there is none.
    """

    value: str
    views: tuple[str, ...]
    bytes: int
    first: int
    last: int
    may_share: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory that the instructions of one call allocate; without workspaces of kernels.

    Values that may or may not share memory are counted as if they did not, and are live as long as anything
    that may alias them: then the peak is an upper bound, and `is_exact` is False.

    Attributes:
        live_ranges: The live ranges, in order of allocation.
        instructions: For each instruction the name of its node; ``return`` stands for the copies after the
            last one.
        live_bytes: The live memory during each instruction.
        lower_bound_bytes: The largest sum of the inputs and outputs of one instruction: no buffer
            assignment for these instructions needs less.
        uncounted: Instructions with internal memory that is not counted: partitions of backends, branches,
            loops.
    """

    live_ranges: tuple[LiveRange, ...]
    instructions: tuple[str, ...]
    live_bytes: tuple[int, ...]
    lower_bound_bytes: int
    uncounted: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """The maximum of ``live_bytes``."""
        return max(self.live_bytes, default=0)

    @property
    def peak_instruction(self) -> str:
        """The node that runs at the peak; empty if there are no instructions."""
        return self.instructions[self.live_bytes.index(self.peak_bytes)] if self.instructions else ""

    @property
    def is_exact(self) -> bool:
        """True if the aliasing of all values is known."""
        return not any(item.reason for item in self.live_ranges)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        totals = {
            "peak_bytes": self.peak_bytes,
            "peak_instruction": self.peak_instruction,
            "is_exact": self.is_exact,
        }
        return {**totals, **asdict(self)}

    def __str__(self) -> str:
        most = "" if self.is_exact else "at most "
        rows = [f"peak {most}{self.peak_bytes:,} bytes at {self.peak_instruction or 'no instruction'}"]
        rows.append(f"lower bound {self.lower_bound_bytes:,} bytes")
        if self.uncounted:
            rows.append(f"not counted: what is needed inside of {', '.join(self.uncounted)}")
        width = max((len(item.value) for item in self.live_ranges), default=5)
        rows.append(f"{'value':<{width}}  {'bytes':>12}  instructions")
        rows += [f"{item.value:<{width}}  {_describe(item)}" for item in self.live_ranges]
        return "\n".join(rows)


def _describe(item: LiveRange) -> str:
    shared = f"  shared by {', '.join(item.views)}" if item.views else ""
    may = f"  may share the memory of {', '.join(item.may_share)}: {item.reason}" if item.reason else ""
    return f"{item.bytes:>12,}  {item.first} to {item.last}{shared}{may}"


def plan_memory(
    instructions: Sequence[Instruction],
    kept: Collection[Value],
    copied: Sequence[Value],
) -> MemoryPlan:
    """Return the liveness report of a sequence of instructions.

    Args:
        instructions: The instructions, in order.
        kept: Results, and new contents of mutated state.
        copied: Values that are copied after the last instruction.

    Raises:
        GraphError: Sizes are symbolic.
    """
    defined = (value for instruction in instructions for value in instruction.outputs)
    for value in (value for value in defined if value.type.symbols):
        raise GraphError(
            f"%{value.name} is {value.type}: with symbolic sizes, its memory depends on the call",
            fix="specialize the graph first: graph.specialize({...})",
        )
    owner_of = _owners(instructions)
    live_ranges = _live_ranges(instructions, owner_of, _range_ends(instructions, kept))
    uncertain = {item.value for item in live_ranges if item.reason}
    # A lower bound must not count a value that may alias another one.
    certain = {value: owner for value, owner in owner_of.items() if owner.name not in uncertain}
    count = len(instructions)
    live_ranges += [
        LiveRange(f"copy of {value.name}", (), span_bytes(value.type), count, count) for value in copied
    ]
    names = (*[instruction.node.name for instruction in instructions], *([_RETURN] if copied else []))
    changes = [0] * (len(names) + 1)
    for item in live_ranges:
        changes[item.first] += item.bytes
        changes[min(item.last + 1, len(names))] -= item.bytes
    return MemoryPlan(
        live_ranges=tuple(live_ranges),
        instructions=names,
        live_bytes=tuple(itertools.accumulate(changes[:-1])),
        lower_bound_bytes=max((_operand_bytes(item, certain) for item in instructions), default=0),
        uncounted=tuple(dict.fromkeys(name for item in instructions for name in _uncounted_nodes(item))),
    )


def _live_ranges(
    instructions: Sequence[Instruction], owner_of: Mapping[Value, Value], ends: Mapping[Value, int]
) -> list[LiveRange]:
    sizes = _sizes(instructions)
    values: dict[Value, list[Value]] = {}
    for value, owner in owner_of.items():
        values.setdefault(owner, []).append(value)
    live_ranges = []
    for index, instruction in enumerate(instructions):
        # The others reside in the memory of another value.
        for owner, shares in zip(instruction.outputs, instruction.shares, strict=True):
            if owner not in values:
                continue
            views = tuple(item.name for item in values[owner] if item is not owner)
            is_certain = instruction.is_certain or not isinstance(owner.type, TensorType)
            sources = [instruction.inputs[number] for number in ([] if is_certain else sorted(shares))]
            others = tuple(dict.fromkeys(item.name for item in sources if isinstance(item.type, TensorType)))
            last, reason = max(ends[item] for item in values[owner]), _reason(instruction) if others else ""
            live_ranges.append(LiveRange(owner.name, views, sizes[owner], index, last, others, reason))
    return live_ranges


def _owners(instructions: Sequence[Instruction]) -> dict[Value, Value]:
    """Return the owner of each value's memory, for values in memory that the call allocates.

    A possible alias counts as memory of its own.
    """
    owner_of: dict[Value, Value] = {}
    for instruction in instructions:
        for value, shares in zip(instruction.outputs, instruction.shares, strict=True):
            sources = [instruction.inputs[number] for number in sorted(shares) if instruction.is_certain]
            if instruction.overwrites is not None:
                sources = [instruction.overwrites]
            if not sources:
                owner_of[value] = value
            # A view of an argument has no memory of the call.
            elif owners := [owner_of[source] for source in sources if source in owner_of]:
                owner_of[value] = owners[0]
    return owner_of


def _sizes(instructions: Sequence[Instruction]) -> dict[Value, int]:
    """Return the size of the memory behind each value, in bytes; of a view, that of its whole base."""
    sizes: dict[Value, int] = {}
    for instruction in instructions:
        input_sizes = [sizes.get(value, span_bytes(value.type)) for value in instruction.inputs]
        copies_all = instruction.overwrites is None and instruction.node.op_type in _COPY_ALL
        for value, shares in zip(instruction.outputs, instruction.shares, strict=True):
            numbers = [*shares, *([0] if copies_all and not instruction.is_partition else [])]
            bases = [input_sizes[number] for number in numbers if instruction.is_certain]
            sizes[value] = max([span_bytes(value.type), *bases])
    return sizes


def _range_ends(instructions: Sequence[Instruction], kept: Collection[Value]) -> dict[Value, int]:
    """Return the last instruction that needs the memory of each value, possible aliases included."""
    ends: dict[Value, int] = dict.fromkeys(kept, len(instructions))
    # Backward: the end of an alias is final when its source is reached.
    for index in reversed(range(len(instructions))):
        instruction = instructions[index]
        for value, shares in zip(instruction.outputs, instruction.shares, strict=True):
            end = ends.setdefault(value, index)
            for number in shares:
                source = instruction.inputs[number]
                ends[source] = max(end, ends.get(source, index))
        for value in instruction.inputs:
            ends.setdefault(value, index)
    return ends


def _reason(instruction: Instruction) -> str:
    if instruction.is_partition:
        return f"the backend {instruction.backend!r} may return views"
    if instruction.needs_symbols:
        return f"{instruction.node.op_type} cannot be tried beforehand"
    return "it depends on the strides that its inputs turn out to have"


def _uncounted_nodes(instruction: Instruction) -> list[str]:
    """Return the nodes of an instruction whose internal memory is unknown."""
    if instruction.is_partition:
        names = list(dict.fromkeys((instruction.nodes[0].name, instruction.nodes[-1].name)))
        return [f"{instruction.kernel} ({' to '.join(names)})"]
    return [node.name for node in instruction.nodes if node.regions]


def _operand_bytes(instruction: Instruction, owners: Mapping[Value, Value]) -> int:
    return sum(
        span_bytes(item.type)
        for item in {
            owners[value] for value in (*instruction.inputs, *instruction.outputs) if value in owners
        }
    )
