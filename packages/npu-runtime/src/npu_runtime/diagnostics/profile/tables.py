"""Profiles as tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from npu_ir.cli.console import Table
from npu_ir.cli.quantities import count_text, size_text, time_text
from npu_ir.errors import UsageError
from npu_passes.cli.reports import flops_text

if TYPE_CHECKING:
    from npu_runtime.diagnostics.profile.report import Profile, StepTime, Total

BY = ("node", "op", "module")


def table(profile: Profile, by: str, limit: int | None) -> str:
    """Return a table with the longest times first, followed by a comparison with whole calls.

    Raises:
        UsageError: There is no such table, or ``limit`` is less than 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"a table has at least one row, not limit={limit}", fix="limit=None for all rows")
    columns, rows = table_rows(profile, by)
    shown = rows if limit is None else rows[:limit]
    lines = [str(Table(columns, shown))]
    if len(shown) < len(rows):
        lines.append(f"... {count_text(len(rows) - len(shown), 'row')} more")
    facts = call_facts(profile)
    width = max(map(len, facts))
    return "\n".join([*lines, "", *(f"{name:{width}}  {value}" for name, value in facts.items())])


def table_rows(profile: Profile, by: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns of a table and its rows, the longest times first.

    Raises:
        UsageError: ``by`` is not one of `BY`.
    """
    if by not in BY:
        raise UsageError(f"there is no table by {by!r}", fix=f"there are tables by {', '.join(BY)}")
    quantities = ("time", "share", "FLOPs", "GFLOP/s", "read", "written")
    if by == "node":
        steps = sorted(profile.steps, key=lambda step: -step.seconds)
        return ("node", *quantities, "kernel", "module", "source"), [_step_row(step) for step in steps]
    totals = profile.by_op() if by == "op" else profile.by_module()
    return (by, "steps", *quantities), [_total_row(total) for total in totals]


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


def _step_row(step: StepTime) -> tuple[str, ...]:
    count = f" (+{len(step.nodes) - 1})" if len(step.nodes) > 1 else ""
    kernel = step.kernel if step.backend == "aten" else f"{step.backend}: {step.kernel}"
    return f"{step.name}{count}", *_quantities(step), kernel, step.module, step.source


def _total_row(total: Total) -> tuple[str, ...]:
    return total.name or "(all)", f"{total.count:,}", *_quantities(total)


def _quantities(item: StepTime | Total) -> Sequence[str]:
    return (
        time_text(item.seconds),
        f"{item.share:.1%}",
        known_flops_text(item.flops),
        "" if item.gflops is None else f"{item.gflops:.3g}",
        size_text(item.bytes_read) if item.bytes_read else "",
        size_text(item.bytes_written) if item.bytes_written else "",
    )


def known_flops_text(count: int | None) -> str:
    """Return a number of floating-point operations as text: "" for 0, "?" if it is unknown."""
    return "?" if count is None else flops_text(count) if count else ""
