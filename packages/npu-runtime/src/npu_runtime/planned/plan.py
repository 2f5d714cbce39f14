"""A memory plan: the instructions of a graph over fixed memory, and the buffer of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from npu_ir import Graph, Value
from npu_runtime.codegen.compiled_function import CompiledFunction
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.lowered_graph import LoweredGraph
from npu_runtime.planned.buffers import Action


@dataclass(frozen=True, slots=True)
class Buffer:
    """The buffer of one value.

    Attributes:
        value: The name of the value.
        kind: One of ``input``, ``state``, ``constant``, ``view``, ``arena``, ``made`` and ``number``.
        offset: The offset in the arena, in bytes; None if it does not reside there.
        bytes: The span in memory; of a view, the span of the view itself.
        first: The number of the instruction that writes it; -1 if it is written before the first one.
        last: The number of the last instruction that reads it.
        shares: The value in whose memory it resides; empty if it has its own.
        why: The reason that it is allocated in each run; empty if it is not.
    """

    value: str
    kind: str
    offset: int | None
    bytes: int
    first: int
    last: int
    shares: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned graph of fixed sizes; bound to weights, it is a `PlannedProgram`.

    Attributes:
        lowered: The program, as its backends lowered it.
        device: The device to run on.
        buffers: The buffer of each value.
        calls: The instructions by phase.
        arena_bytes: The size of the arena.
        lower_bound_bytes: The maximum of the live bytes in the arena: no assignment of offsets needs less.
        made_bytes: The sum of the dynamic values of one run, at most; workspaces of ops are not counted.
        backend_bytes: The memory that the programs of other backends keep for themselves.
        peak_bytes: The memory of a run besides inputs and state: the arena, the most dynamic values that are
            live at a time, and that of other backends.
        compute: The generated function of the compute phase, which writes only to the arena.
        commit: The generated function of the commit phase, which writes state, and returns the results.
        fresh: The results that `compute_fresh` returns in memory of their own.
        compute_fresh: `compute`, but for the memory of these results.
        read_in_place: The tensors that the compute phase takes after the numbers: all inputs, if nothing is
            bound to their memory, so that it may read them in that of the caller; otherwise none.
        actions: The actions of binding, in order.
        staging_copies: Staging copies by the result that they replace.
    """

    lowered: LoweredGraph
    device: torch.device
    buffers: tuple[Buffer, ...]
    calls: Mapping[str, tuple[Instruction, ...]]
    arena_bytes: int
    lower_bound_bytes: int
    made_bytes: int
    backend_bytes: int
    peak_bytes: int
    compute: CompiledFunction
    commit: CompiledFunction
    fresh: frozenset[Value]
    compute_fresh: CompiledFunction
    read_in_place: tuple[Value, ...]
    actions: tuple[Action, ...]
    staging_copies: Mapping[Value, Value]

    @property
    def graph(self) -> Graph:
        """The program."""
        return self.lowered.graph

    @property
    def source(self) -> str:
        """Both phases, as Python source."""
        return f"{self.compute.source.text}\n\n{self.commit.source.text}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        calls = {
            phase: [
                {"node": item.node.name, "op": item.node.op_type, "kernel": item.kernel}
                for item in instructions
            ]
            for phase, instructions in self.calls.items()
        }
        return {
            "graph": self.graph.name,
            "device": str(self.device),
            **self.totals(),
            "buffers": [asdict(item) for item in self.buffers],
            "calls": calls,
        }

    def totals(self) -> dict[str, int]:
        """Return the memory sizes of the plan."""
        return {
            "arena_bytes": self.arena_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "made_bytes": self.made_bytes,
            "backend_bytes": self.backend_bytes,
            "peak_bytes": self.peak_bytes,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{len(instructions)} to {phase}" for phase, instructions in self.calls.items())
        rows = [
            f"plan of {self.graph.name} on {self.device}: {counts}",
            *(f"{name:<17} {size:>12,}" for name, size in self.totals().items()),
        ]
        width = max((len(item.value) for item in self.buffers), default=5)
        rows.append(f"{'value':<{width}}  {'kind':<8}  {'offset':>10}  {'bytes':>12}  steps")
        for item in self.buffers:
            offset = "" if item.offset is None else f"{item.offset:,}"
            shares = f"  in {item.shares}" if item.shares else ""
            why = f"  {item.why}" if item.why else ""
            rows.append(
                f"{item.value:<{width}}  {item.kind:<8}  {offset:>10}  {item.bytes:>12,}  "
                f"{item.first} to {item.last}{shares}{why}"
            )
        return "\n".join(rows)
