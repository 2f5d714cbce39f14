"""Journal of the rewrites that passes made, and of those they refused, with the reason.

A pass writes to the journal of the manager that runs it. Run on its own, it writes to a journal that is
discarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from npu_ir import Graph
from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite that a pass made.

    Attributes:
        pass_name: The pass.
        rule: The rule of the pass.
        nodes: The names of the nodes that were rewritten.
        made: The names of the new nodes.
        region: The path of the nodes' region (`region_path`); "" in the top-level graph.
    """

    pass_name: str
    rule: str
    nodes: tuple[str, ...]
    made: tuple[str, ...] = ()
    region: str = ""

    def __str__(self) -> str:
        made = f" -> {', '.join(self.made)}" if self.made else ""
        return f"{self.pass_name}: {self.rule}: {', '.join(self.paths)}{made}"

    @property
    def paths(self) -> tuple[str, ...]:
        """``nodes``, each prefixed by its region: ``cond.true_fn/mul``."""
        return tuple(_join_path(self.region, name) for name in self.nodes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One rewrite that a pass did not make, though it looked possible.

    Attributes:
        pass_name: The pass.
        rule: The rule of the pass; "" if it has only one.
        node: The name of the node that would have been rewritten.
        reason: The reason, in words.
        region: The path of the node's region (`region_path`); "" in the top-level graph.
    """

    pass_name: str
    rule: str
    node: str
    reason: str
    region: str = ""

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.path}: {self.reason}"

    @property
    def path(self) -> str:
        """``node``, prefixed by its region: ``cond.true_fn/mul``."""
        return _join_path(self.region, self.node)


def region_path(graph: Graph | None) -> str:
    """Return the path of a region by its enclosing nodes, ``cond.true_fn``; "" for the top-level graph."""
    owner = None if graph is None else graph.owner
    if owner is None:
        return ""
    (name,) = (name for name, region in owner.regions.items() if region is graph)
    return _join_path(region_path(owner.graph), f"{owner.name}.{name}")


def _join_path(region: str, name: str) -> str:
    return f"{region}/{name}" if region else name


# A BaseException, so that `except Exception` in a pass does not swallow it.
class RewriteLimitReachedError(BaseException):
    """Stop signal before a rewrite that would exceed the journal's limit; the graph is consistent."""


@dataclass(slots=True)
class Journal:
    """Rewrites and refusals, in order.

    Attributes:
        rewrites: The rewrites that were made.
        limit: The maximum number of rewrites; None for no limit.
        failure: The error of the first rewrite that failed, even if the pass caught it and went on.
    """

    rewrites: list[Rewrite] = field(default_factory=list)
    limit: int | None = None
    failure: PassError | None = None
    _refusals: dict[Refusal, None] = field(default_factory=dict, repr=False)
    _edits: dict[int, int] = field(default_factory=dict, repr=False)
    _open: Rewrite | None = field(default=None, repr=False)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The refused rewrites; for a pass that ran several times, those of its last run."""
        return tuple(self._refusals)

    def refuse(self, refusal: Refusal) -> None:
        self._refusals[refusal] = None

    def begin_pass(self, graphs: Iterable[Graph], pass_name: str) -> None:
        """Begin a run of a pass over a graph and its regions; forget its earlier refusals.

        Raises:
            RewriteLimitReachedError: The limit is reached.
        """
        self._check_limit()
        self._edits = {id(graph): graph.edits for graph in graphs}
        for refusal in [item for item in self._refusals if item.pass_name == pass_name]:
            del self._refusals[refusal]

    def begin_rewrite(self, graph: Graph, rewrite: Rewrite) -> None:
        """Begin a rewrite; record earlier edits that belong to no rewrite as one of their own.

        Raises:
            PassError: Another rewrite is still open.
            RewriteLimitReachedError: The limit is reached.
        """
        if self._open is not None:
            raise PassError(
                f"{rewrite.pass_name}: the rewrite {rewrite.rule!r} begins inside of {self._open.rule!r}",
                where=f"node {rewrite.paths[-1]!r}",
                fix="end one rewrite before the next, so that the graph is whole between them",
            )
        self.record_edits(graph, rewrite.pass_name)
        self._check_limit()
        self._open = rewrite

    def end_rewrite(self, graph: Graph, made: Iterable[str]) -> None:
        """Record the open rewrite, if it changed anything."""
        assert self._open is not None
        if self._has_unrecorded_edits(graph):
            self.rewrites.append(replace(self._open, made=tuple(made)))
        self._edits[id(graph)] = graph.edits
        self._open = None

    def fail_rewrite(self, failure: PassError | None) -> None:
        """Discard the open rewrite, which will not end: it failed, or was abandoned (None)."""
        self._open = None
        self.failure = self.failure or failure

    def record_edits(self, graph: Graph, pass_name: str) -> None:
        """Record edits of ``graph`` that belong to no rewrite as one of their own, if there are any."""
        if self._has_unrecorded_edits(graph):
            self.rewrites.append(Rewrite(pass_name, "run", (), region=region_path(graph)))
        self._edits[id(graph)] = graph.edits

    def _has_unrecorded_edits(self, graph: Graph) -> bool:
        return graph.edits != self._edits.get(id(graph), graph.edits)

    def _check_limit(self) -> None:
        if self.limit is not None and len(self.rewrites) >= self.limit:
            raise RewriteLimitReachedError


# A context variable, so that managers in several threads each have their own journal.
_current: ContextVar[Journal | None] = ContextVar("npu_passes_journal", default=None)


@contextlib.contextmanager
def use_journal(journal: Journal) -> Iterator[None]:
    """Direct the passes that run inside the context to ``journal``."""
    token = _current.set(journal)
    try:
        yield
    finally:
        _current.reset(token)


def current_journal() -> Journal:
    """Return the journal that passes write to; a new one, which is discarded, if no manager runs."""
    return _current.get() or Journal()
