"""The profile of a call: by instruction, op, module and phase; as a table, plain data and a Chrome trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir.cli.console import Table
from npu_ir.cli.quantities import count_text, size_text, time_text
from npu_ir.errors import UsageError
from npu_passes.cli.reports import flops_text
from npu_runtime.diagnostics.profile.chrome_trace import chrome_trace, module_paths

BY = ("node", "op", "module", "phase")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The time and costs of instructions.

    Attributes:
        seconds: Median over the runs, or the sum of medians.
        share: The share of the time of all instructions.
        flops: Floating-point operations; None if they are unknown. Totals have those that are known.
        bytes_read: Bytes of all tensors that are read; 0 for a view.
        bytes_written: Bytes of all tensors that are created or overwritten; 0 for a view.
    """

    seconds: float
    share: float
    flops: int | None
    bytes_read: int
    bytes_written: int

    @property
    def gflops(self) -> float | None:
        """Billions of floating-point operations per second; None if there are none, or they are unknown."""
        return self.flops / self.seconds / 1e9 if self.flops and self.seconds else None

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read, and those that are written."""
        return self.bytes_read + self.bytes_written

    @property
    def gbytes(self) -> float | None:
        """Billions of bytes per second, read and written; None if there are none."""
        return self.moved_bytes / self.seconds / 1e9 if self.moved_bytes and self.seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime(Costs):
    """The time and costs of one instruction of the program.

    Attributes:
        name: The node that produces its outputs.
        nodes: Every node that it computes.
        op_type: The op type of the node.
        backend: The backend that runs it.
        kernel: The name of the kernel.
        module: Path of the module of the node.
        source: ``file:line`` of the user's code.
        phase: The phase of a training step: forward, backward or optimizer; else "".
        fastest_seconds: Minimum over the runs.
    """

    name: str
    nodes: tuple[str, ...]
    op_type: str
    backend: str
    kernel: str
    module: str
    source: str
    phase: str
    fastest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Total(Costs):
    """The total time and costs of several instructions.

    Attributes:
        name: Their common op type, module or phase.
        count: The number of instructions.
    """

    name: str
    count: int


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
        return self._totals(lambda step: [step.op_type])

    def by_module(self) -> list[Total]:
        """Return the totals of each module including its submodules, the longest first.

        The name ``""`` is that of the model itself, which includes all instructions.
        """
        return self._totals(lambda step: module_paths(step.module))

    def by_phase(self) -> list[Total]:
        """Return the totals of each phase of a training step, the longest first; ``""`` has no phase."""
        return self._totals(lambda step: [step.phase])

    def _totals(self, groups_of: Callable[[StepTime], Sequence[str]]) -> list[Total]:
        groups: dict[str, list[StepTime]] = {}
        for step in self.steps:
            for name in groups_of(step):
                groups.setdefault(name, []).append(step)
        totals = (
            Total(
                name=name,
                count=len(steps),
                seconds=sum(step.seconds for step in steps),
                share=sum(step.share for step in steps),
                flops=sum(step.flops or 0 for step in steps),
                bytes_read=sum(step.bytes_read for step in steps),
                bytes_written=sum(step.bytes_written for step in steps),
            )
            for name, steps in groups.items()
        )
        return sorted(totals, key=lambda total: -total.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain data."""

        def records(items: Sequence[StepTime | Total]) -> list[dict[str, Any]]:
            return [
                {**dataclasses.asdict(item), "gflops": item.gflops, "gbytes": item.gbytes} for item in items
            ]

        numbers = ("call_seconds", "timed_call_seconds", "steps_seconds", "between_seconds", "clock_seconds")
        return {
            **{name: getattr(self, name) for name in ("graph", "device", "threads", "repeat", *numbers)},
            "steps": records(self.steps),
            "ops": records(self.by_op()),
            "modules": records(self.by_module()),
            "phases": records(self.by_phase()),
        }

    def to_chrome_trace(self) -> dict[str, Any]:
        """Return one typical run in the trace-event format, which Perfetto and ``chrome://tracing`` open."""
        facts = [
            {
                "op": step.op_type,
                "kernel": step.kernel,
                "backend": step.backend,
                "nodes": list(step.nodes),
                "source": step.source,
                "median_us": step.seconds * 1e6,
                "flops": step.flops,
                "bytes_read": step.bytes_read,
                "bytes_written": step.bytes_written,
            }
            for step in self.steps
        ]
        names = [(step.name, step.module) for step in self.steps]
        return chrome_trace(self.graph, names, facts, self.readings)

    def rows(self, by: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the columns of a table by one of `BY`, and its rows, longest first.

        Raises:
            UsageError: ``by`` is something else.
        """
        if by not in BY:
            raise UsageError(f"there is no table by {by!r}", fix=f"there are tables by {', '.join(BY)}")
        quantities = ("time", "share", "FLOPs", "GFLOP/s", "read", "written", "GB/s")
        if by == "node":
            rows = [_step_row(step) for step in sorted(self.steps, key=lambda step: -step.seconds)]
            return ("node", *quantities, "kernel", "module", "source"), rows
        totals = {"op": self.by_op, "module": self.by_module, "phase": self.by_phase}[by]()
        nameless = "(all)" if by == "module" else "(none)"
        rows = [(total.name or nameless, f"{total.count:,}", *_quantities(total)) for total in totals]
        return (by, "steps", *quantities), rows

    def table(self, by: str = "node", limit: int | None = 20) -> str:
        """Return a table with the longest times first.

        Args:
            by: ``"node"``, ``"op"``, ``"module"`` or ``"phase"``.
            limit: The maximum number of rows, at least one; None for all.

        Raises:
            UsageError: ``by`` is something else, or ``limit`` is less than 1.
        """
        if limit is not None and limit < 1:
            raise UsageError(
                f"a table has at least one row, not limit={limit}", fix="limit=None for all rows"
            )
        columns, rows = self.rows(by)
        shown = rows if limit is None else rows[:limit]
        lines = [str(Table(columns, shown))]
        if len(shown) < len(rows):
            lines.append(f"... {count_text(len(rows) - len(shown), 'row')} more")
        facts = self.facts()
        width = max(map(len, facts))
        return "\n".join([*lines, "", *(f"{name:{width}}  {value}" for name, value in facts.items())])

    def facts(self) -> dict[str, str]:
        """Return the times of calls, of all instructions, and between them, as lines by title."""
        return {
            "call": f"{time_text(self.call_seconds)}, median of {self.repeat}, "
            f"{count_text(self.threads, 'thread')}",
            "steps": f"{time_text(self.steps_seconds)} in {count_text(len(self.steps), 'step')}; "
            f"between them {time_text(self.between_seconds)}",
            "with clocks": f"a call takes {time_text(self.timed_call_seconds)}; the overhead of a clock, "
            f"{time_text(self.clock_seconds)}, has been subtracted from each step",
        }

    def __str__(self) -> str:
        return self.table()


def _step_row(step: StepTime) -> tuple[str, ...]:
    count = f" (+{len(step.nodes) - 1})" if len(step.nodes) > 1 else ""
    kernel = step.kernel if step.backend == "aten" else f"{step.backend}: {step.kernel}"
    return f"{step.name}{count}", *_quantities(step), kernel, step.module, step.source


def _quantities(item: StepTime | Total) -> Sequence[str]:
    return (
        time_text(item.seconds),
        f"{item.share:.1%}",
        known_flops_text(item.flops),
        "" if item.gflops is None else f"{item.gflops:.3g}",
        size_text(item.bytes_read) if item.bytes_read else "",
        size_text(item.bytes_written) if item.bytes_written else "",
        "" if item.gbytes is None else f"{item.gbytes:.3g}",
    )


def known_flops_text(count: int | None) -> str:
    """Return a number of floating-point operations as text: "" for 0, "?" if it is unknown."""
    return "?" if count is None else flops_text(count) if count else ""
