"""Liveness report: the live range of each value's memory, and the peak of a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npu_ir import GraphError, TensorType, Value
from npu_ir.core.storage import span_bytes
from npu_runtime.lowering.alias_sets import OutputAliasing
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
        lifetimes: The live ranges, in order of allocation.
        steps: For each instruction the name of its node; ``return`` stands for the copies after the last one.
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
    def peak_step(self) -> str:
        """The node that runs at the peak; empty if there are no instructions."""
        return self.instructions[self.live_bytes.index(self.peak_bytes)] if self.instructions else ""

    @property
    def is_exact(self) -> bool:
        """True if the aliasing of all values is known."""
        return not any(item.reason for item in self.live_ranges)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        totals = {"peak_bytes": self.peak_bytes, "peak_step": self.peak_step, "is_exact": self.is_exact}
        return {**totals, **asdict(self)}

    def __str__(self) -> str:
        most = "" if self.is_exact else "at most "
        rows = [f"peak {most}{self.peak_bytes:,} bytes at {self.peak_step or 'no step'}"]
        rows.append(f"lower bound {self.lower_bound_bytes:,} bytes")
        if self.uncounted:
            rows.append(f"not counted: what is needed inside of {', '.join(self.uncounted)}")
        width = max((len(item.value) for item in self.live_ranges), default=5)
        rows.append(f"{'value':<{width}}  {'bytes':>12}  steps")
        rows += [f"{item.value:<{width}}  {_describe(item)}" for item in self.live_ranges]
        return "\n".join(rows)


def _describe(item: LiveRange) -> str:
    shared = f"  shared by {', '.join(item.views)}" if item.views else ""
    may = f"  may share the memory of {', '.join(item.may_share)}: {item.reason}" if item.reason else ""
    return f"{item.bytes:>12,}  {item.first} to {item.last}{shared}{may}"


def plan_memory(
    steps: Sequence[Instruction],
    sharing: Sequence[OutputAliasing],
    kept: Collection[Value],
    copied: Sequence[Value],
) -> MemoryPlan:
    """Return the liveness report of a sequence of instructions.

    Args:
        steps: The instructions, in order.
        sharing: For each instruction the aliasing of its outputs.
        kept: Results, and new contents of mutated state.
        copied: Values that are copied after the last instruction.

    Raises:
        GraphError: Sizes are symbolic.
    """
    for value in (value for step in steps for value in step.outputs if value.type.symbols):
        raise GraphError(
            f"%{value.name} is {value.type}: with symbolic sizes, its memory depends on the call",
            fix="specialize the graph first: graph.specialize({...})",
        )
    owner_of = _owners(steps, sharing)
    sizes = _sizes(steps, sharing)
    lifetimes = _live_ranges(steps, sharing, owner_of, _range_ends(steps, sharing, kept), sizes)
    uncertain = {item.value for item in lifetimes if item.reason}
    certain = {value: owner for value, owner in owner_of.items() if owner.name not in uncertain}
    count = len(steps)
    lifetimes += [
        LiveRange(f"copy of {value.name}", (), span_bytes(value.type), count, count) for value in copied
    ]
    names = (*[step.node.name for step in steps], *([_RETURN] if copied else []))
    return MemoryPlan(
        live_ranges=tuple(lifetimes),
        instructions=names,
        live_bytes=_live_bytes(lifetimes, len(names)),
        lower_bound_bytes=max((_operand_bytes(step, certain) for step in steps), default=0),
        uncounted=tuple(dict.fromkeys(name for step in steps for name in _uncounted_nodes(step))),
    )


def _live_ranges(
    steps: Sequence[Instruction],
    sharing: Sequence[OutputAliasing],
    owner_of: Mapping[Value, Value],
    ends: Mapping[Value, int],
    sizes: Mapping[Value, int],
) -> list[LiveRange]:
    values: dict[Value, list[Value]] = {}
    for value, owner in owner_of.items():
        values.setdefault(owner, []).append(value)
    lifetimes = []
    for index, (step, known) in enumerate(zip(steps, sharing, strict=True)):
        for owner in step.outputs:
            items = values.get(owner, [])
            if not items:
                continue  # it resides in the memory of another value
            views = tuple(item.name for item in items if item is not owner)
            others = _possible_sources(step, known, owner)
            last, reason = max(ends[item] for item in items), _reason(step) if others else ""
            lifetimes.append(LiveRange(owner.name, views, sizes[owner], index, last, others, reason))
    return lifetimes


def _owners(steps: Sequence[Instruction], sharing: Sequence[OutputAliasing]) -> dict[Value, Value]:
    """Return the owner of each value's memory, for values in memory that the call allocates.

    A possible alias counts as memory of its own.
    """
    owner_of: dict[Value, Value] = {}
    for step, known in zip(steps, sharing, strict=True):
        for value, shares in zip(step.outputs, known.shares, strict=True):
            sources = [step.inputs[number] for number in sorted(shares)] if known.is_certain else []
            if step.overwrites is not None:
                sources = [step.overwrites]
            if not sources:
                owner_of[value] = value
            # A view of an argument has no memory of the call.
            elif owners := [owner_of[source] for source in sources if source in owner_of]:
                owner_of[value] = owners[0]
    return owner_of


def _sizes(steps: Sequence[Instruction], sharing: Sequence[OutputAliasing]) -> dict[Value, int]:
    """Return the size of the memory behind each value, in bytes; of a view, that of its whole base."""
    sizes: dict[Value, int] = {}
    for step, known in zip(steps, sharing, strict=True):
        given = [sizes.get(value, span_bytes(value.type)) for value in step.inputs]
        for value, shares in zip(step.outputs, known.shares, strict=True):
            seen = [given[number] for number in shares]
            if not step.is_partition and step.node.op_type in _COPY_ALL and step.overwrites is None:
                seen.append(given[0])
            sizes[value] = (
                max(span_bytes(value.type), *seen) if known.is_certain and seen else span_bytes(value.type)
            )
    return sizes


def _range_ends(
    steps: Sequence[Instruction], sharing: Sequence[OutputAliasing], kept: Collection[Value]
) -> dict[Value, int]:
    """Return the last instruction that needs the memory of each value, possible aliases included."""
    ends: dict[Value, int] = dict.fromkeys(kept, len(steps))
    # Backward: the end of an alias is final when its source is reached.
    for index in reversed(range(len(steps))):
        step = steps[index]
        for value, shares in zip(step.outputs, sharing[index].shares, strict=True):
            end = ends.setdefault(value, index)
            for number in shares:
                source = step.inputs[number]
                ends[source] = max(end, ends.get(source, index))
        for value in step.inputs:
            ends.setdefault(value, index)
    return ends


def _possible_sources(step: Instruction, known: OutputAliasing, value: Value) -> tuple[str, ...]:
    """Return the names of the values that an output may alias, if that is uncertain."""
    if known.is_certain or not isinstance(value.type, TensorType):
        return ()
    numbers = known.shares[step.outputs.index(value)]
    sources = [step.inputs[number] for number in sorted(numbers)]
    return tuple(dict.fromkeys(item.name for item in sources if isinstance(item.type, TensorType)))


def _reason(step: Instruction) -> str:
    if step.is_partition:
        return f"the backend {step.backend!r} may return views"
    if step.needs_symbols:
        return f"{step.node.op_type} cannot be tried beforehand"
    return "it depends on the strides that its inputs turn out to have"


def _uncounted_nodes(step: Instruction) -> list[str]:
    """Return the nodes of an instruction whose internal memory is unknown."""
    if step.is_partition:
        names = list(dict.fromkeys((step.nodes[0].name, step.nodes[-1].name)))
        return [f"{step.kernel} ({' to '.join(names)})"]
    return [node.name for node in step.nodes if node.regions]


def _live_bytes(lifetimes: Sequence[LiveRange], count: int) -> tuple[int, ...]:
    live = [0] * count
    for item in lifetimes:
        for index in range(item.first, min(item.last + 1, count)):
            live[index] += item.bytes
    return tuple(live)


def _operand_bytes(step: Instruction, owners: Mapping[Value, Value]) -> int:
    return sum(
        span_bytes(item.type)
        for item in {owners[value] for value in (*step.inputs, *step.outputs) if value in owners}
    )
