"""Pass manager: runs passes in order up to a fixpoint, verifies and measures them, and names faulty ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from npu_ir import Graph, GraphError, NpuError
from npu_ir.core.isolation import pause_gc
from npu_ir.graph.requirement import require_graph
from npu_passes.core.base import Pass
from npu_passes.core.journal import Journal, Rewrite, RewriteLimitReachedError
from npu_passes.core.options import options_of
from npu_passes.core.pass_order import sort_passes
from npu_passes.core.pass_text import format_passes, parse_passes, passes_of
from npu_passes.errors import PassError
from npu_passes.manager.checked_mode import Checked, Results, Trial, find_first_difference
from npu_passes.manager.dumps import Dumps
from npu_passes.manager.rounds import PassRun, Rounds
from npu_passes.manager.signature_check import find_signature_change
from npu_passes.manager.statistics import FlopCounter, PassResult, PassStatistics, graph_statistics

MAX_ROUNDS = 10


def optimize(graph: Graph, pipeline: str = "default") -> Graph:
    """Run the passes of a pipeline over a copy of ``graph`` and return the copy.

    Args:
        graph: The graph.
        pipeline: The name of a pipeline, or text that names several and passes: ``"default,decompose"``.

    Raises:
        GraphError: ``graph`` is not a graph, or breaks a rule of the IR before any pass.
        PassError: The pipeline or a pass is unknown, or a pass fails or breaks the graph.
    """
    return PassManager(parse_passes(pipeline)).optimize(graph)


class PassManager:
    """Runner of passes over graphs.

    Args:
        passes: Passes, classes of passes (with their default options), or text that names some, or
            pipelines of them: ``"default,constant-folding{max_bytes=1024}"``; or one of these. They run in
            this order, as far as their ``before`` and ``after`` allow.
        max_rounds: The passes are repeated until nothing changes, for at most this many rounds.
        checked: Data to run the graph on after each pass, to compare its results with those before.
        dump_dir: Folder for dumps of the graph as text, before all passes and after each that changed it.

    Raises:
        PassError: A pass is unknown, or their constraints on the order contradict each other.
    """

    def __init__(
        self,
        passes: Pass | type[Pass] | str | Iterable[Pass | type[Pass] | str],
        *,
        max_rounds: int = MAX_ROUNDS,
        checked: Checked | None = None,
        dump_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        if type(max_rounds) is not int or max_rounds < 1:
            raise PassError(f"passes run in at least one round, not in {max_rounds!r}", fix="max_rounds=10")
        if checked is not None and not isinstance(checked, Checked):
            raise PassError(f"checked is the data to check on, not {checked!r}", fix="checked=Checked()")
        if isinstance(passes, (str, Pass, type)):
            passes = [passes]
        if isinstance(passes, torch.Tensor) or not isinstance(passes, Iterable):
            raise PassError(
                f"expected passes, got {type(passes).__name__}", fix="name some: PassManager('cse,dead-code')"
            )
        self.passes = tuple(sort_passes([item for given in passes for item in _instantiate(given)]))
        self.max_rounds = max_rounds
        self.checked = checked
        self.dump_dir = None if dump_dir is None else Path(dump_dir)

    @classmethod
    def of_pipeline(cls, pipeline: str, *, checked: Checked | None = None) -> PassManager:
        """Return a manager of the passes of a named pipeline.

        Raises:
            PassError: The pipeline is unknown.
        """
        return cls(passes_of(pipeline), checked=checked)

    def run(self, graph: Graph) -> PassResult:
        """Run the passes over a copy of ``graph`` and return it, with statistics and the journal.

        Raises:
            GraphError: ``graph`` is not a graph, or breaks a rule of the IR before any pass.
            PassError: A pass fails, breaks a rule, changes the graph's signature or (in checked mode) its
                results, or returns the wrong answer to whether it edited the graph. Names the pass, and the
                rewrite if it can be determined.
        """
        with _prepared(graph):
            recorder = _Recorder(graph, self.dump_dir)
            return recorder.result(self._rewrite(graph, recorder))

    def optimize(self, graph: Graph) -> Graph:
        """Run the passes over a copy of ``graph`` and return it, as `run` does, but count nothing.

        Raises:
            GraphError: As for `run`.
            PassError: As for `run`.
        """
        with _prepared(graph):
            recorder = None if self.dump_dir is None else _Recorder(graph, self.dump_dir)
            return self._rewrite(graph, recorder).graph

    def _rewrite(self, graph: Graph, recorder: _Recorder | None) -> Rounds:
        if self.checked is not None or self.dump_dir is not None:
            return self._run(graph, recorder, verifies_each=True)
        try:
            return self._run(graph, recorder, verifies_each=False)
        except NpuError:
            # Verified once, behind the last pass, for speed. The second run finds the pass at fault.
            self._run(graph, None, verifies_each=True)
            raise

    def _run(self, graph: Graph, recorder: _Recorder | None, *, verifies_each: bool) -> Rounds:
        rounds = Rounds(graph.clone(), self.passes, self.max_rounds)
        trial = None if self.checked is None else Trial(graph, self.checked)
        results = None if trial is None else trial.first
        for step in rounds.run_passes():
            if step.edited and verifies_each:
                self._verify(graph, rounds, step.item)
            # Also where nothing was edited: a pass may have changed data without the graph's methods.
            results = _run_and_compare(rounds, trial, step.item, results)
            if recorder is not None:
                recorder.record(rounds.graph, step)
        self._verify_whole(graph, rounds)
        return rounds

    def _verify(self, original: Graph, rounds: Rounds, item: Pass) -> None:
        """Raise if edits of a pass break a rule of the IR (naming the rewrite) or change the signature."""
        try:
            rounds.graph.check_edits()
        except GraphError as error:
            raise self._blame(original, rounds, str(item), error) from error
        _require_same_signature(original, rounds.graph, str(item))

    def _verify_whole(self, original: Graph, rounds: Rounds) -> None:
        """Raise if the graph breaks a rule of the IR, or has another signature than before."""
        try:
            rounds.graph.check()
        except GraphError as error:
            raise self._blame(original, rounds, "a pass", error) from error
        _require_same_signature(original, rounds.graph, "a pass")

    def _blame(self, original: Graph, rounds: Rounds, who: str, error: GraphError) -> PassError:
        """Return an error that names the rewrite that broke the graph, if it can be determined."""
        rewrite = self._find_breaking_rewrite(original, len(rounds.journal.rewrites))
        where = []
        if rewrite is not None:
            who = rewrite.pass_name if who == "a pass" else who
            where = [f"rewrite {rewrite.rule!r} of {', '.join(rewrite.paths)}"] if rewrite.nodes else []
        return PassError(
            f"{who} broke the graph: {error.message}",
            where="; ".join([*where, *([error.where] if error.where else [])]),
            fix="this is a bug in the pass; the caller's graph is unchanged",
        )

    def _find_breaking_rewrite(self, original: Graph, count: int) -> Rewrite | None:
        """Return the first rewrite after which the graph breaks a rule; None if it cannot be reproduced."""
        # Binary search: the graph is valid after fewer than `low` rewrites, and broken after `high`.
        low, high = 0, count
        try:
            while low < high:
                middle = (low + high) // 2
                state = replay_rewrites(original, self.passes, middle, self.max_rounds)
                low, high = (low, middle) if _is_broken(state.graph) else (middle + 1, high)
            state = replay_rewrites(original, self.passes, low, self.max_rounds)
        except PassError:
            return None  # a pass is not deterministic: the original error is the one to report
        return state.journal.rewrites[-1] if state.journal.rewrites and _is_broken(state.graph) else None

    def __repr__(self) -> str:
        return f"<PassManager: {format_passes(self.passes)}>"


class _Recorder:
    """Statistics and dumps of a graph that passes run over."""

    def __init__(self, graph: Graph, dump_dir: Path | None) -> None:
        self._counter = FlopCounter()
        self._before = self._last = graph_statistics(graph, self._counter)
        self._dumps = None if dump_dir is None else Dumps(dump_dir, graph)
        self._runs: list[PassStatistics] = []

    def record(self, graph: Graph, step: PassRun) -> None:
        """Record one run of a pass, after it."""
        before = self._last
        if step.edited:
            self._last = graph_statistics(graph, self._counter)
            if self._dumps is not None:
                self._dumps.write(step.item.name, graph)
        text = str(step.item)
        self._runs.append(PassStatistics(text, step.round, step.rewrites, step.seconds, before, self._last))

    def result(self, rounds: Rounds) -> PassResult:
        """Return the result of all passes."""
        runs = tuple(self._runs)
        return PassResult(
            rounds.graph, self._before, self._last, runs, rounds.round, rounds.converged, rounds.journal
        )


def replay_rewrites(
    original: Graph, passes: tuple[Pass, ...], rewrites: int, max_rounds: int = MAX_ROUNDS
) -> Rounds:
    """Run passes over a copy of ``original`` up to a number of rewrites; return the rounds at that point."""
    rounds = Rounds(original.clone(), passes, max_rounds, Journal(limit=rewrites))
    try:
        for _ in rounds.run_passes():
            pass
    except RewriteLimitReachedError:
        pass
    return rounds


def _instantiate(given: Pass | type[Pass] | str) -> list[Pass]:
    if isinstance(given, str):
        return parse_passes(given)
    if isinstance(given, Pass):
        return [given]
    if isinstance(given, type) and issubclass(given, Pass):
        options_of(given)  # raises a clear error for an option without a default
        return [given()]
    raise PassError(
        f"{given!r} is not a pass", fix="give passes, classes derived from Pass, or text that names passes"
    )


def _run_and_compare(
    rounds: Rounds, trial: Trial | None, item: Pass, expected: Results | None
) -> Results | None:
    """Return the current results of the graph; raise if they differ from those before the last pass."""
    if trial is None or expected is None:
        return None
    try:
        results = trial.results(rounds.graph)
        problem = find_first_difference(results, expected, item.numerics)
    except NpuError as error:
        results, problem = expected, f"it cannot be run after the pass: {error.message}"
    if problem is not None:
        raise PassError(
            f"{item} changed what graph {rounds.graph.name!r} computes: {problem}",
            where=f"round {rounds.round}; its numerics are {item.numerics}",
            fix="npu_passes.bisect(graph, passes), or npu opt --bisect, finds the rewrite",
        )
    return results


@contextlib.contextmanager
def _prepared(graph: Graph) -> Iterator[None]:
    """Require a valid graph, and pause garbage collection."""
    require_graph(graph)
    # A large graph is many small live objects: scanning them for garbage takes a third of the time.
    with pause_gc():
        graph.check_edits()  # what was extracted, loaded or parsed has been checked as a whole
        yield


def _require_same_signature(original: Graph, graph: Graph, who: str) -> None:
    change = find_signature_change(original, graph)
    if change is not None:
        raise PassError(
            f"{who} changed what callers see of the graph: {change}",
            where=f"graph {original.name!r}",
            fix="a pass rewrites what is inside: arguments, results, updates and the names of weights stay",
        )


def _is_broken(graph: Graph) -> bool:
    try:
        graph.check()
    except GraphError:
        return True
    return False
