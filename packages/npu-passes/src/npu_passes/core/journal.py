"""What passes tell of themselves: the rewrites they made, and those they refused, with the reason.

A pass writes to the journal of the manager that runs it. Run on its own, it writes to nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from npu_ir import Graph, OpNode
from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite that a pass made.

    Attributes:
        pass_name: Which pass.
        rule: Which of its rules.
        nodes: The names of the nodes it was about.
        made: The names of the nodes it made.
        region: Where they are: the path of a region (`region_path`); "" in the program itself.
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
        """``nodes``, with the region in front that they are in: ``cond.true_fn/mul``."""
        return tuple(_path(self.region, name) for name in self.nodes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One rewrite that a pass did not make, though it looked possible.

    Attributes:
        pass_name: Which pass.
        rule: Which of its rules; "" where there is only one.
        node: The name of the node it would have changed.
        reason: Why not.
        region: Where the node is: the path of a region (`region_path`); "" in the program itself.
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
        """``node``, with the region in front that it is in: ``cond.true_fn/mul``."""
        return _path(self.region, self.node)


def region_path(graph: Graph | None) -> str:
    """Return where a region is in its program, by the nodes around it: ``cond.true_fn``; "" of the program itself."""
    owner = None if graph is None else graph.owner
    if owner is None:
        return ""
    (name,) = (name for name, region in owner.regions.items() if region is graph)
    return _path(region_path(owner.graph), f"{owner.name}.{name}")


def _path(region: str, name: str) -> str:
    return f"{region}/{name}" if region else name


class RewriteLimitReachedError(BaseException):
    """Stops a pass in front of a rewrite that the journal does not allow; the graph is whole."""


@dataclass(slots=True)
class Journal:
    """Rewrites and refusals, in order.

    Attributes:
        rewrites: What was done.
        limit: How many rewrites may be made; None for any number.
        failure: The first rewrite that failed, though the pass may have gone on.
    """

    rewrites: list[Rewrite] = field(default_factory=list)
    limit: int | None = None
    failure: PassError | None = None
    _refusals: dict[Refusal, None] = field(default_factory=dict)
    _edits: dict[int, int] = field(default_factory=dict)
    _open: Rewrite | None = None

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What was not done; of a pass that ran several times, what it said last."""
        return tuple(self._refusals)

    def refuse(self, refusal: Refusal) -> None:
        self._refusals[refusal] = None

    def begin_pass(self, graphs: Iterable[Graph], pass_name: str) -> None:
        """Note that a pass is about to run over a program and its regions: what it refused before is forgotten.

        Raises:
            RewriteLimitReachedError: No more rewrites are allowed.
        """
        self._require_allowed()
        self._edits = {id(graph): graph.edits for graph in graphs}
        for refusal in [item for item in self._refusals if item.pass_name == pass_name]:
            del self._refusals[refusal]

    def begin_rewrite(self, graph: Graph, rewrite: Rewrite) -> None:
        """Note that a rewrite begins. Edits that no rewrite was said to be about are one of their own.

        Raises:
            PassError: It is inside of another one.
            RewriteLimitReachedError: No more are allowed.
        """
        if self._open is not None:
            raise PassError(
                f"{rewrite.pass_name}: the rewrite {rewrite.rule!r} begins inside of {self._open.rule!r}",
                where=f"node {rewrite.paths[-1]!r}",
                fix="end one rewrite before the next, so that the graph is whole between them",
            )
        self.note_edits(graph, rewrite.pass_name)
        self._require_allowed()
        self._open = rewrite

    def end_rewrite(self, graph: Graph, made: Iterable[str]) -> None:
        """Write down the rewrite that began last, if it changed anything."""
        assert self._open is not None
        if self._has_edits(graph):
            self.rewrites.append(replace(self._open, made=tuple(made)))
        self._edits[id(graph)] = graph.edits
        self._open = None

    def fail_rewrite(self, failure: PassError) -> None:
        """Note that the rewrite that began last failed."""
        self._open = None
        self.failure = self.failure or failure

    def abandon_rewrite(self) -> None:
        """Note that the rewrite that began last will not end."""
        self._open = None

    def note_edits(self, graph: Graph, pass_name: str) -> None:
        """Write down edits of ``graph`` that no rewrite was said to be about, if there are any."""
        if self._has_edits(graph):
            self.rewrites.append(Rewrite(pass_name, "run", (), region=region_path(graph)))
        self._edits[id(graph)] = graph.edits

    def _has_edits(self, graph: Graph) -> bool:
        return graph.edits != self._edits.get(id(graph), graph.edits)

    def _require_allowed(self) -> None:
        if self.limit is not None and len(self.rewrites) >= self.limit:
            raise RewriteLimitReachedError


_current: ContextVar[Journal | None] = ContextVar("npu_passes_journal", default=None)


@contextlib.contextmanager
def writing_to(journal: Journal) -> Iterator[None]:
    """Let the passes that run inside write to ``journal``."""
    token = _current.set(journal)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Journal:
    """Return the journal that passes write to now; one that nobody reads where no manager runs."""
    return _current.get() or Journal()


def refuse(pass_name: str, rule: str, node: OpNode, reason: str) -> None:
    """Write down why a rewrite of ``node`` is not made."""
    current().refuse(Refusal(pass_name, rule, node.name, reason, region_path(node.graph)))
