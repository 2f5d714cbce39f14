"""What passes tell of themselves: the rewrites they made, and those they refused, with the reason.

A pass writes to the journal of the manager that runs it. Run on its own, it writes to nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from npu_ir import OpNode


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite that a pass made.

    Attributes:
        pass_name: Which pass.
        rule: Which of its rules.
        nodes: The names of the nodes it was about.
        made: The names of the nodes it made.
    """

    pass_name: str
    rule: str
    nodes: tuple[str, ...]
    made: tuple[str, ...] = ()

    def __str__(self) -> str:
        made = f" -> {', '.join(self.made)}" if self.made else ""
        return f"{self.pass_name}: {self.rule}: {', '.join(self.nodes)}{made}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One rewrite that a pass did not make, though it looked possible.

    Attributes:
        pass_name: Which pass.
        rule: Which of its rules; "" where there is only one.
        node: The name of the node it would have changed.
        reason: Why not.
    """

    pass_name: str
    rule: str
    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.node}: {self.reason}"


class RewriteLimitReachedError(Exception):
    """Stops a pass in front of a rewrite that the journal does not allow; the graph is whole."""


@dataclass(slots=True)
class Journal:
    """Rewrites and refusals, in order.

    Attributes:
        rewrites: What was done.
        limit: How many rewrites may be made; None for any number.
    """

    rewrites: list[Rewrite] = field(default_factory=list)
    limit: int | None = None
    _refusals: dict[Refusal, None] = field(default_factory=dict)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What was not done; of a pass that ran several times, what it said last."""
        return tuple(self._refusals)

    def forget_refusals(self, pass_name: str) -> None:
        """Forget what a pass refused: it is about to run again."""
        for refusal in [item for item in self._refusals if item.pass_name == pass_name]:
            del self._refusals[refusal]

    def begin_rewrite(self) -> None:
        """Note that a rewrite begins.

        Raises:
            RewriteLimitReachedError: No more are allowed.
        """
        if self.limit is not None and len(self.rewrites) >= self.limit:
            raise RewriteLimitReachedError

    def refuse(self, refusal: Refusal) -> None:
        self._refusals[refusal] = None


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
    current().refuse(Refusal(pass_name, rule, node.name, reason))
