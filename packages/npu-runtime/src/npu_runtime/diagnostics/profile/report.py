"""What was measured of a call: by step, by op and by module; as a table, plain data and a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepTime:
    """What one step of the program takes.

    Attributes:
        name: The node that makes its outputs.
        nodes: Every node that it computes.
        op_type: That of the node.
        backend: Who runs it.
        kernel: What is called.
        module: Path of the module that it comes from.
        source: ``file:line`` of the user's code.
        seconds: Median over the runs.
        fastest_seconds: The shortest of them.
        share: Of the time of all steps.
        flops: Floating-point operations; None where they are not known.
        bytes_read: Bytes of all tensors that it reads; 0 of a view.
        bytes_written: Bytes of all tensors that it makes or overwrites; 0 of a view.
    """

    name: str
    nodes: tuple[str, ...]
    op_type: str
    backend: str
    kernel: str
    module: str
    source: str
    seconds: float
    fastest_seconds: float
    share: float
    flops: int | None
    bytes_read: int
    bytes_written: int

    @property
    def gflops(self) -> float | None:
        """Billions of floating-point operations per second; None where there are none, or they are not known."""
        return self.flops / self.seconds / 1e9 if self.flops and self.seconds else None


@dataclass(frozen=True, slots=True)
class Total:
    """What several steps take together.

    Attributes:
        name: What they have in common.
        count: How many they are.
        seconds: The sum of their medians.
        share: Of the time of all steps.
        flops: Floating-point operations, of the steps whose number is known.
        bytes_read: As for `StepTime`.
        bytes_written: Likewise.
    """

    name: str
    count: int
    seconds: float
    share: float
    flops: int
    bytes_read: int
    bytes_written: int

    @property
    def gflops(self) -> float | None:
        """Billions of floating-point operations per second; None where there are none."""
        return self.flops / self.seconds / 1e9 if self.flops and self.seconds else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a call goes.

    Attributes:
        graph: Name of the graph.
        steps: What the program does, in order.
        call_seconds: Median of a call as it is without clocks.
        timed_call_seconds: Median of a call with a clock around each step.
        between_seconds: Median of what a call takes outside of its steps: arguments are checked, memory is freed.
        clock_seconds: What a clock takes; it has been taken off the steps.
        repeat: How many runs.
        threads: How many threads an op may use.
        device: Where it ran.
        readings: Of one typical run: the clock before and behind each step, in seconds.
    """

    graph: str
    steps: tuple[StepTime, ...]
    call_seconds: float
    timed_call_seconds: float
    between_seconds: float
    clock_seconds: float
    repeat: int
    threads: int
    device: str
    readings: tuple[float, ...]

    @property
    def steps_seconds(self) -> float:
        """The sum of the medians of the steps."""
        return sum(step.seconds for step in self.steps)

    def by_op(self) -> list[Total]:
        """Return what the steps of each op take together, the longest first."""
        return _totals(self.steps, lambda step: step.op_type)

    def by_module(self) -> list[Total]:
        """Return what the steps of each module take together, its submodules included, the longest first.

        What the model itself runs, outside of its modules, goes by the name ``""``, and so does the whole.
        """
        found: dict[str, list[StepTime]] = {}
        for step in self.steps:
            for path in module_paths(step.module):
                found.setdefault(path, []).append(step)
        return _sorted(_total(name, steps) for name, steps in found.items())

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "graph": self.graph,
            "device": self.device,
            "threads": self.threads,
            "repeat": self.repeat,
            "call_seconds": self.call_seconds,
            "timed_call_seconds": self.timed_call_seconds,
            "steps_seconds": self.steps_seconds,
            "between_seconds": self.between_seconds,
            "clock_seconds": self.clock_seconds,
            "steps": [{**dataclasses.asdict(step), "gflops": step.gflops} for step in self.steps],
            "ops": [{**dataclasses.asdict(total), "gflops": total.gflops} for total in self.by_op()],
            "modules": [{**dataclasses.asdict(total), "gflops": total.gflops} for total in self.by_module()],
        }

    def to_chrome_trace(self) -> dict[str, Any]:
        """Return one typical run in the trace-event format, which Perfetto and ``chrome://tracing`` open."""
        from npu_runtime.diagnostics.profile.chrome_trace import chrome_trace

        return chrome_trace(self)

    def table(self, by: str = "node", limit: int | None = 20) -> str:
        """Return a table of what takes longest.

        Args:
            by: ``"node"``, ``"op"`` or ``"module"``.
            limit: The most rows, at least one; None for all.

        Raises:
            UsageError: ``by`` is something else, or there are to be no rows.
        """
        from npu_runtime.diagnostics.profile.tables import table

        return table(self, by, limit)

    def __str__(self) -> str:
        return self.table()


def module_paths(module: str) -> list[str]:
    """Return the paths of a module and of those around it, the outermost first: ``["", "a", "a.b"]``."""
    parts = module.split(".") if module else []
    return ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]


def _totals(steps: Iterable[StepTime], key: Callable[[StepTime], str]) -> list[Total]:
    found: dict[str, list[StepTime]] = {}
    for step in steps:
        found.setdefault(key(step), []).append(step)
    return _sorted(_total(name, group) for name, group in found.items())


def _sorted(totals: Iterable[Total]) -> list[Total]:
    return sorted(totals, key=lambda total: -total.seconds)


def _total(name: str, steps: list[StepTime]) -> Total:
    return Total(
        name=name,
        count=len(steps),
        seconds=sum(step.seconds for step in steps),
        share=sum(step.share for step in steps),
        flops=sum(step.flops or 0 for step in steps),
        bytes_read=sum(step.bytes_read for step in steps),
        bytes_written=sum(step.bytes_written for step in steps),
    )
