"""The profile of a call: by instruction, by op and by module; as a table, plain data and a Chrome trace."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from npu_ir.cli.console import Table
from npu_ir.cli.quantities import count_text, time_text
from npu_ir.errors import UsageError
from npu_runtime.diagnostics.profile.chrome_trace import chrome_trace
from npu_runtime.diagnostics.profile.step_times import StepTime, Total, totals_by_module, totals_by_op
from npu_runtime.diagnostics.profile.tables import table_rows


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
        return totals_by_op(self.steps)

    def by_module(self) -> list[Total]:
        """Return the totals of each module including its submodules, the longest first.

        The name ``""`` is that of the model itself, which includes all instructions.
        """
        return totals_by_module(self.steps)

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
        return chrome_trace(self.graph, self.steps, self.readings)

    def table(self, by: str = "node", limit: int | None = 20) -> str:
        """Return a table with the longest times first.

        Args:
            by: ``"node"``, ``"op"`` or ``"module"``.
            limit: The maximum number of rows, at least one; None for all.

        Raises:
            UsageError: ``by`` is something else, or ``limit`` is less than 1.
        """
        if limit is not None and limit < 1:
            raise UsageError(
                f"a table has at least one row, not limit={limit}", fix="limit=None for all rows"
            )
        columns, rows = table_rows(self.steps, by)
        shown = rows if limit is None else rows[:limit]
        lines = [str(Table(columns, shown))]
        if len(shown) < len(rows):
            lines.append(f"... {count_text(len(rows) - len(shown), 'row')} more")
        facts = call_facts(self)
        width = max(map(len, facts))
        return "\n".join([*lines, "", *(f"{name:{width}}  {value}" for name, value in facts.items())])

    def __str__(self) -> str:
        return self.table()


def call_facts(profile: Profile) -> dict[str, str]:
    """Return the times of calls, of all instructions, and between them, as lines by title."""
    return {
        "call": f"{time_text(profile.call_seconds)}, median of {profile.repeat}, "
        f"{count_text(profile.threads, 'thread')}",
        "steps": f"{time_text(profile.steps_seconds)} in {count_text(len(profile.steps), 'step')}; "
        f"between them {time_text(profile.between_seconds)}",
        "with clocks": f"a call takes {time_text(profile.timed_call_seconds)}; the overhead of a clock, "
        f"{time_text(profile.clock_seconds)}, has been subtracted from each step",
    }
