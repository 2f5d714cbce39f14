"""Memory budgets: values of a step are recomputed until its plan fits."""

from __future__ import annotations

import sys
from dataclasses import replace

from npu_passes.library.training.recompute import MemoryTable, Recompute
from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.select_runner import CapturePolicy

_ATTEMPTS = 5
_LOWEST = 1  # a budget that is not reached: what comes closest to it is tried last


def fit_memory(policy: CapturePolicy, budget: int) -> tuple[CapturePolicy, MemoryTable]:
    """Return a policy whose plan is within a budget, and the table of what is kept and recomputed.

    The pass counts live bytes in the order of the graph. What a plan needs differs: ops have workspaces, and
    gradients that go from one program of a backend to another have memory of their own all the time. So it is
    planned, and the pass is given the budget less the difference.

    Raises:
        CaptureError: The budget cannot be reached; says how near it comes. Or it is not a number of bytes.
    """
    if type(budget) is not int or budget < 1:
        raise CaptureError(f"memory_budget_bytes= is a number of bytes, not {budget!r}")
    target = sys.maxsize
    fitted, table = _recompute(policy, target)
    before = least = planned = _bytes_of(fitted, table)
    difference = planned - table.peak_after
    for attempts_left in reversed(range(_ATTEMPTS)):
        if planned <= budget or target == _LOWEST:
            break
        is_stuck = table.peak_after > target or not attempts_left
        target = _LOWEST if is_stuck else max(budget - difference, _LOWEST)
        fitted, table = _recompute(policy, target)
        planned = _bytes_of(fitted, table)
        least = min(least, planned)
        difference = max(difference, planned - table.peak_after)
    if planned <= budget:
        return fitted, replace(table, budget_bytes=budget, peak_before=before, peak_after=planned)
    raise CaptureError(
        f"the step does not fit in {budget:,} bytes: it takes {before:,} without recomputation,"
        f" and {least:,} at least with it",
        where=f"graph {policy.graph.name!r}",
        fix=f"raise memory_budget_bytes= to {least:,} or more, or make the batch smaller",
    )


def _recompute(policy: CapturePolicy, budget: int) -> tuple[CapturePolicy, MemoryTable]:
    graph = policy.graph.clone()
    table = Recompute(budget_bytes=budget).fit(graph)
    graph.check_edits()
    return replace(policy, graph=graph), table


def _bytes_of(policy: CapturePolicy, table: MemoryTable) -> int:
    """Return the planned memory of a step; of one that is not planned the live bytes."""
    planned = policy.planned_bytes()
    return table.peak_after if planned is None else planned
