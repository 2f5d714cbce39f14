"""The profile of a call: by instruction, by op and by module; as a table, plain data and a Chrome trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time and costs of one instruction of the program.

    Attributes:
        name: The node that produces its outputs.
        nodes: Every node that it computes.
        op_type: The op type of the node.
        backend: The backend that runs it.
        kernel: The name of the kernel.
        module: Path of the module of the node.
        source: ``file:line`` of the user's code.
        seconds: Median over the runs.
        fastest_seconds: Minimum over the runs.
        share: Its share of the time of all instructions.
        flops: Floating-point operations; None if they are unknown.
        bytes_read: Bytes of all tensors that it reads; 0 for a view.
        bytes_written: Bytes of all tensors that it creates or overwrites; 0 for a view.
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
        """Billions of floating-point operations per second; None if there are none, or they are unknown."""
        return self.flops / self.seconds / 1e9 if self.flops and self.seconds else None


@dataclass(frozen=True, slots=True)
class Total:
    """The total time and costs of several instructions.

    Attributes:
        name: Their common op type or module.
        count: The number of instructions.
        seconds: The sum of their medians.
        share: Their share of the time of all instructions.
        flops: Known floating-point operations.
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
        """Billions of floating-point operations per second; None if there are none."""
        return self.flops / self.seconds / 1e9 if self.flops and self.seconds else None


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a call.

    Attributes:
        graph: Name of the graph.
        steps: The instructions of the program, in order.
        call_seconds: Median time of a call without clocks.
        timed_call_seconds: Median time of a call with a clock around each instruction.
        between_seconds: Median time outside of the instructions: arguments are checked, memory is freed.
        clock_seconds: The overhead of a clock, which has been subtracted from each instruction.
        repeat: The number of runs.
        threads: The number of threads that an op may use.
        device: The device of the executor.
        readings: The clock before and after each instruction of one typical run, in seconds.
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
        """The sum of the medians of all instructions."""
        return sum(step.seconds for step in self.steps)

    def by_op(self) -> list[Total]:
        """Return the totals of each op, the longest first."""
        return _group_totals(self.steps, lambda step: step.op_type)

    def by_module(self) -> list[Total]:
        """Return the totals of each module including its submodules, the longest first.

        The name ``""`` is that of the model itself, which includes all instructions.
        """
        steps_of: dict[str, list[StepTime]] = {}
        for step in self.steps:
            for path in module_paths(step.module):
                steps_of.setdefault(path, []).append(step)
        return _longest_first(_sum_steps(name, steps) for name, steps in steps_of.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain data."""
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
        """Return a table with the longest times first.

        Args:
            by: ``"node"``, ``"op"`` or ``"module"``.
            limit: The maximum number of rows, at least one; None for all.

        Raises:
            UsageError: ``by`` is something else, or ``limit`` is less than 1.
        """
        from npu_runtime.diagnostics.profile.tables import table

        return table(self, by, limit)

    def __str__(self) -> str:
        return self.table()


def module_paths(module: str) -> list[str]:
    """Return the paths of a module and its parents, the outermost first: ``["", "a", "a.b"]``."""
    parts = module.split(".") if module else []
    return ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]


def _group_totals(steps: Iterable[StepTime], key: Callable[[StepTime], str]) -> list[Total]:
    groups: dict[str, list[StepTime]] = {}
    for step in steps:
        groups.setdefault(key(step), []).append(step)
    return _longest_first(_sum_steps(name, group) for name, group in groups.items())


def _longest_first(totals: Iterable[Total]) -> list[Total]:
    return sorted(totals, key=lambda total: -total.seconds)


def _sum_steps(name: str, steps: list[StepTime]) -> Total:
    return Total(
        name=name,
        count=len(steps),
        seconds=sum(step.seconds for step in steps),
        share=sum(step.share for step in steps),
        flops=sum(step.flops or 0 for step in steps),
        bytes_read=sum(step.bytes_read for step in steps),
        bytes_written=sum(step.bytes_written for step in steps),
    )
