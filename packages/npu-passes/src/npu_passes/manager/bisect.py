"""Bisection for the pass, and the one rewrite, that changed what a graph computes.

As with ``-opt-bisect-limit`` of LLVM: the passes are replayed with a limit on rewrites, and the limit is
halved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from npu_ir import Graph, NpuError
from npu_ir.graph.requirement import require_graph
from npu_passes.core.base import Numerics, Pass
from npu_passes.errors import PassError
from npu_passes.manager.checked_mode import Checked, Trial, find_first_difference
from npu_passes.manager.manager import MAX_ROUNDS, PassManager, replay_rewrites
from npu_passes.manager.reproduction import Culprit, write_reproduction
from npu_passes.manager.rounds import Rounds


def bisect(
    graph: Graph,
    passes: Pass | type[Pass] | str | Iterable[Pass | type[Pass] | str],
    *,
    rtol: float | None = None,
    data: Checked | None = None,
    repro_dir: str | os.PathLike[str] | None = None,
    max_rounds: int = MAX_ROUNDS,
) -> Culprit | None:
    """Return the rewrite that changes what ``graph`` computes; None if none does.

    A linear scan finds the first run of a pass after which results differ; a binary search then finds a
    rewrite of that run before which results are right and after which they are not. It is the first such
    rewrite, unless a later one repairs what an earlier one broke.

    Args:
        graph: The graph; it is not changed.
        passes: As for `PassManager`.
        rtol: Allowed difference from the results of ``graph``, relative to the largest magnitude of each
            result. By default each pass is held to its own numerics.
        data: Data to run the graph on; random weights and inputs by default.
        repro_dir: Write the two graphs, the data and a script that compares them into this folder.
        max_rounds: As for `PassManager`.

    Raises:
        GraphError: ``graph`` is not a graph, or breaks a rule of the IR.
        PassError: The graph cannot be run before any pass, or a pass fails or is not deterministic.
    """
    require_graph(graph)
    graph.check()
    manager = PassManager(passes, max_rounds=max_rounds)
    search = _Search(graph, manager, Trial(graph, data or Checked()), rtol)
    culprit = search.run()
    if culprit is not None and repro_dir is not None:
        write_reproduction(repro_dir, culprit, search.trial)
    return culprit


class _Search:
    """State of one bisection."""

    def __init__(self, graph: Graph, manager: PassManager, trial: Trial, rtol: float | None) -> None:
        self._graph = graph
        self._manager = manager
        self._rtol = rtol
        self.trial = trial

    def run(self) -> Culprit | None:
        rounds = Rounds(self._graph.clone(), self._manager.passes, self._manager.max_rounds)
        good, expected = 0, self.trial.first
        for step in rounds.run_passes():
            numerics = step.item.numerics if self._rtol is None else Numerics(self._rtol)
            if not step.edited:
                continue
            if self._find_difference(rounds.graph, expected, numerics) is not None:
                return self._bisect_pass_run(
                    step.item, good, len(rounds.journal.rewrites), expected, numerics
                )
            good = len(rounds.journal.rewrites)
            # A pass is held to its own numerics: small errors of earlier passes must not add up against it.
            expected = self.trial.results(rounds.graph) if self._rtol is None else expected
        return None

    def _bisect_pass_run(
        self, item: Pass, good: int, bad: int, expected: object, numerics: Numerics
    ) -> Culprit:
        """Bisect one run of a pass: results are right after ``good`` rewrites, and wrong after ``bad``."""
        while bad - good > 1:
            state = self._replay((good + bad) // 2)
            # Above the limit where the pass edits between rewrites: such edits are an entry of their own.
            count = len(state.journal.rewrites)
            if self._find_difference(state.graph, expected, numerics) is None:
                good = count
            elif count < bad:
                bad = count
            else:
                break  # no limit stops between the two
        before, after = self._replay(good), self._replay(bad)
        difference = self._find_difference(after.graph, expected, numerics)
        if difference is None or len(after.journal.rewrites) < bad:
            raise PassError(
                f"{item} cannot be bisected: it makes different rewrites each time it runs",
                where=f"graph {self._graph.name!r}, rewrite {bad}",
                fix="make it deterministic: no iteration over sets, no random choices, no id()",
            )
        return Culprit(str(item), after.journal.rewrites[bad - 1], bad, difference, before.graph, after.graph)

    def _replay(self, rewrites: int) -> Rounds:
        return replay_rewrites(self._graph, self._manager.passes, rewrites, self._manager.max_rounds)

    def _find_difference(self, graph: Graph, expected: object, numerics: Numerics) -> str | None:
        try:
            return find_first_difference(self.trial.results(graph), expected, numerics)  # type: ignore[arg-type]
        except NpuError as error:
            return f"the graph cannot be run after it: {error.message}"
