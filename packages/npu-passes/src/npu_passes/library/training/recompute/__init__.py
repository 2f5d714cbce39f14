"""Recomputation: nodes of the forward pass run again in the backward pass, so that memory stays in a budget.

In: the graph of a training step, and a budget. Out: the same step, bit by bit, whose intermediate values fit,
and a table of what is kept and what is recomputed. Open `selection.py` first, then `liveness.py`.
"""

from __future__ import annotations

from npu_ir import Graph
from npu_passes.core.base import Pass
from npu_passes.errors import PassError
from npu_passes.library.training.recompute.liveness import Program, Simulation
from npu_passes.library.training.recompute.memory_table import MemoryTable, make_table
from npu_passes.library.training.recompute.second_runs import SecondRuns
from npu_passes.library.training.recompute.selection import find_lowest_peak, select
from npu_passes.manager.statistics import FlopCounter, estimate_seconds

__all__ = ["MemoryTable", "Recompute"]

_RULE = "second run"


class Recompute(Pass):
    """Recompute values before their late readers, instead of keeping them, until memory is within a budget.

    Of the values that are alive where memory exceeds the budget, those are recomputed that free the most
    bytes per second of recomputation: in a training step values of the forward pass, whole segments of it
    where their inputs are gone, too. Each is recomputed once, by the same op on the same inputs, so results
    are bit-equal. Random ops, ops with effects and results of the graph run once. Weights, inputs and state
    do not count.

    A pass that merges equal nodes, such as `cse`, would undo it: it runs last.

    Attributes:
        budget_bytes: The most bytes that intermediate values may take; 0 for no limit.
    """

    name = "recompute"
    is_idempotent = True
    after = ("cse", "scalars-to-tensors", "fuse-optimizer", "channels-last")

    budget_bytes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget_bytes < 0:
            raise PassError(f"a budget of memory is not negative: {self.budget_bytes}")

    def requires(self, graph: Graph) -> str | None:
        """Fixed sizes, if there is a budget."""
        if not self.budget_bytes:
            return None
        value = next((value for value in graph.values if value.type.symbols), None)
        return None if value is None else f"%{value.name} is {value.type}: its memory depends on the call"

    def run(self, graph: Graph) -> bool:
        """Recompute values of a graph; those in regions stay."""
        if not self.budget_bytes or graph.owner is not None:
            return False
        before = graph.edits
        table = self.fit(graph)
        if table.peak_after > self.budget_bytes:
            raise PassError(
                f"no recomputation brings the intermediate values down to {self.budget_bytes:,} bytes:"
                f" {table.peak_before:,} as they are, {table.peak_after:,} at least",
                fix=f"raise the budget to {table.peak_after:,} bytes or more, or make the batch smaller",
            )
        return graph.edits != before

    def fit(self, graph: Graph) -> MemoryTable:
        """Recompute values of a graph, and return what was chosen.

        If the budget cannot be reached, that is what comes closest to it (`MemoryTable.peak_after`).
        """
        program, count = Program(graph), FlopCounter()
        seconds = {unit.node: estimate_seconds(unit.node, count) or 0.0 for unit in program.units}
        chosen = select(program, self.budget_bytes, seconds.__getitem__)
        if chosen.peak > self.budget_bytes:
            chosen = find_lowest_peak(program, chosen, seconds.__getitem__)
        table = make_table(program, chosen, self.budget_bytes, seconds, count)
        for row in table.rows:
            if not row.is_recomputed:
                self.refuse(graph.node(row.node), row.why, _RULE)
        self._insert(graph, chosen)
        return table

    def _insert(self, graph: Graph, chosen: Simulation) -> None:
        """Insert the second runs, and have late readers read their outputs."""
        copies = SecondRuns(graph, chosen)
        for unit in sorted(chosen.ends, key=lambda unit: unit.position):
            with self.rewrite(graph, _RULE, unit.node) as edit:
                edit.made += copies.add(unit)
        copies.erase_unread()
