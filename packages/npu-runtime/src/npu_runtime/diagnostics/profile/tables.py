"""The rows of tables of instructions: by node, by op and by module."""

from __future__ import annotations

from collections.abc import Sequence

from npu_ir.cli.quantities import size_text, time_text
from npu_ir.errors import UsageError
from npu_passes.cli.reports import flops_text
from npu_runtime.diagnostics.profile.step_times import StepTime, Total, totals_by_module, totals_by_op

BY = ("node", "op", "module")


def table_rows(steps: Sequence[StepTime], by: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns of a table and its rows, the longest times first.

    Raises:
        UsageError: ``by`` is not one of `BY`.
    """
    if by not in BY:
        raise UsageError(f"there is no table by {by!r}", fix=f"there are tables by {', '.join(BY)}")
    quantities = ("time", "share", "FLOPs", "GFLOP/s", "read", "written")
    if by == "node":
        rows = [_step_row(step) for step in sorted(steps, key=lambda step: -step.seconds)]
        return ("node", *quantities, "kernel", "module", "source"), rows
    totals = totals_by_op(steps) if by == "op" else totals_by_module(steps)
    return (by, "steps", *quantities), [_total_row(total) for total in totals]


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
