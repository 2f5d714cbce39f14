"""Rounds of passes over a graph, up to a fixpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from npu_ir import Graph, NpuError
from npu_passes import _torch
from npu_passes.core.base import Pass
from npu_passes.core.journal import Journal, use_journal
from npu_passes.errors import PassError, failure_of


@dataclass(slots=True)
class PassRun:
    """One run of a pass over a graph and its regions."""

    item: Pass
    round: int  # the round, from 1
    edited: bool  # whether it changed the graph
    seconds: float
    rewrites: int  # the number of its entries in the journal


@dataclass(slots=True)
class Rounds:
    """Rounds of passes over a graph, which they edit in place."""

    graph: Graph
    passes: Sequence[Pass]
    max_rounds: int  # bound on the number of rounds, fixpoint or not
    journal: Journal = field(default_factory=Journal)  # the journal that the passes write to
    round: int = 0  # the number of rounds begun
    converged: bool = False  # whether a fixpoint is reached

    def run_passes(self) -> Iterator[PassRun]:
        """Run the passes; yield after each.

        A pass is skipped if nothing has been edited since its last run. Its own edits count, unless it is
        idempotent.

        Raises:
            PassError: A pass fails, or returns the wrong answer to whether it edited the graph.
            RewriteLimitReachedError: The limit of the journal is reached.
        """
        seen: dict[int, tuple[int, ...]] = {}  # by pass, the edit counts at which it need not run
        self.graph.track_origins()
        while not self.converged and self.round < self.max_rounds:
            self.round += 1
            for index, item in enumerate(self.passes):
                before = edit_counts(self.graph)
                if seen.get(index) == before:
                    continue
                yield self._run_pass(item)
                seen[index] = edit_counts(self.graph) if item.is_idempotent else before
            self.converged = all(edits == edit_counts(self.graph) for edits in seen.values())

    def _run_pass(self, item: Pass) -> PassRun:
        first = len(self.journal.rewrites)
        before, start = edit_counts(self.graph), time.perf_counter()
        versions = _constant_versions(self.graph)
        self.journal.begin_pass(self.graph.graphs(), item.name)
        with use_journal(self.journal):
            said = run_once(item, self.graph)
        seconds = time.perf_counter() - start
        if self.journal.failure is not None:
            raise self.journal.failure  # the pass caught it and went on with a half-made rewrite
        self._check_constants(item, versions)
        edited = edit_counts(self.graph) != before
        if said != edited:
            raise PassError(
                f"{item} returned {said}, but it {'edited the graph' if edited else 'changed nothing'}",
                fix="run(graph) returns True exactly when it edited the graph"
                + ("" if edited else "; to replace a value that nothing reads is not an edit"),
            )
        for part in self.graph.graphs():
            part.settle_origins()
            self.journal.record_edits(part, item.name)
        return PassRun(item, self.round, edited, seconds, len(self.journal.rewrites) - first)

    def _check_constants(self, item: Pass, versions: dict[torch.Tensor, int]) -> None:
        """Raise if a pass wrote into a constant: copies of a graph share their data."""
        for data, version in versions.items():
            if _torch.version_of(data) != version:
                raise PassError(
                    f"{item} wrote into the data of a constant, which the caller's graph shares",
                    where=f"graph {self.graph.name!r}",
                    fix="add a constant with the new content: graph.add_constant(...)",
                )


def run_once(item: Pass, graph: Graph) -> bool:
    """Run a pass over a graph and its regions; return whether it reports an edit of any of them.

    Raises:
        PassError: It fails, or a precondition or postcondition does not hold.
    """
    said = False
    for part in list(graph.graphs()):
        if part is not graph and (part.owner is None or part.owner.is_erased):
            continue  # the node that owned the region is gone
        with _pass_errors(item, part):
            _check_condition(item, item.requires(part), part, "requires")
            answer = item.run(part)
            if not isinstance(answer, bool):
                raise PassError(
                    f"{item} returned {answer!r}",
                    fix="run(graph) returns True exactly when it edited the graph",
                )
            _check_condition(item, item.ensures(part), part, "ensures")
        said |= answer
    return said


@contextlib.contextmanager
def _pass_errors(item: Pass, graph: Graph) -> Iterator[None]:
    """Convert exceptions raised inside to a `PassError` that names the pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PassError) and item.name in error.message:
            raise
        where = error.where if isinstance(error, NpuError) else None
        raise failure_of(str(item), error, where or f"graph {graph.name!r}") from error


def _check_condition(item: Pass, problem: object, graph: Graph, verb: str) -> None:
    if problem is not None and not isinstance(problem, str):
        raise PassError(
            f"{item}.{verb}(graph) returned {problem!r}",
            fix="it returns what the graph lacks, in words, or None",
        )
    if problem is not None:
        raise PassError(
            f"{item} {verb} a condition that does not hold: {problem}",
            where=f"graph {graph.name!r}",
            fix="run another pass before it" if verb == "requires" else "this is a bug in the pass",
        )


def _constant_versions(graph: Graph) -> dict[torch.Tensor, int]:
    """Return the number of in-place writes to the data of each constant."""
    holders = [values for part in graph.graphs() for values in (part.constants, part.buffers)]
    data = [value.data for values in holders for value in values.values()]
    return {item: _torch.version_of(item) for item in data if item is not None}


def edit_counts(graph: Graph) -> tuple[int, ...]:
    """Return the edit counts of a graph and its regions, which differ after every edit."""
    # Not their sum, which an erased node can leave the same by taking its regions along.
    return tuple(part.edits for part in graph.graphs())
