"""A plan: what a graph does over fixed memory, and where each value lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from npu_ir import Graph, Value
from npu_runtime.codegen.compiled_function import Program
from npu_runtime.lowering.instruction import Step
from npu_runtime.planned.buffers import Action


@dataclass(frozen=True, slots=True)
class Buffer:
    """The place of one value.

    Attributes:
        value: Its name.
        kind: What it is: ``input``, ``state``, ``constant``, ``view``, ``arena``, ``made`` or ``number``.
        offset: In the arena, in bytes; None where it is not there.
        bytes: How much memory it spans; of a view, what it sees.
        first: The number of the step that writes it; -1 where it is there before.
        last: The number of the last step that reads it.
        shares: The value in whose memory it lies; empty where that is its own.
        why: Why it is made in each run; empty where it is not.
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
    """A graph of fixed sizes, planned: bound to weights, it is a `PlannedProgram`.

    Attributes:
        graph: What is computed.
        device: Where.
        buffers: The place of every value.
        calls: What is called, phase by phase.
        arena_bytes: The size of the arena.
        lower_bound_bytes: The most memory of the arena that is in use at once: no placement needs less.
        made_bytes: What one run allocates besides for values, in all, at most; ops may take more while they compute.
        compute: The program of the first phase: it changes nothing but the arena.
        commit: That of the second one, which writes state.
        passed: What the first phase hands to the second one.
        actions: What binding does, in order.
        stand_ins: What holds a result in place of the value itself.
    """

    graph: Graph
    device: torch.device
    buffers: tuple[Buffer, ...]
    calls: Mapping[str, tuple[Step, ...]]
    arena_bytes: int
    lower_bound_bytes: int
    made_bytes: int
    compute: Program
    commit: Program
    passed: tuple[Value, ...]
    actions: tuple[Action, ...]
    stand_ins: Mapping[Value, Value]

    @property
    def source(self) -> str:
        """Both phases, as Python source."""
        return f"{self.compute.source.text}\n\n{self.commit.source.text}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        calls = {
            phase: [
                {"node": step.node.name, "op": step.node.op_type, "kernel": step.kernel} for step in steps
            ]
            for phase, steps in self.calls.items()
        }
        return {
            "graph": self.graph.name,
            "device": str(self.device),
            **self.totals(),
            "buffers": [asdict(item) for item in self.buffers],
            "calls": calls,
        }

    def totals(self) -> dict[str, int]:
        """Return the sizes of what the plan needs."""
        return {
            "arena_bytes": self.arena_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "made_bytes": self.made_bytes,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{len(steps)} to {phase}" for phase, steps in self.calls.items())
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
