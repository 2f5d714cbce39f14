"""What comes of running passes: the new graph, and what each pass did to get there."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import Graph
from npu_passes.core.journal import Journal
from npu_passes.manager.statistics import GraphStatistics


@dataclass(frozen=True, slots=True)
class PassStatistics:
    """What one run of a pass did.

    Attributes:
        text: The pass with its options.
        round: In which round it ran, from 1 on.
        rewrites: How many rewrites it made.
        seconds: How long it took, without the checks around it.
        before: The graph in front of it.
        after: The graph behind it.
    """

    text: str
    round: int
    rewrites: int
    seconds: float
    before: GraphStatistics
    after: GraphStatistics


@dataclass(frozen=True, slots=True)
class PassResult:
    """What came of running passes.

    Attributes:
        graph: The new graph.
        before: The graph that was given.
        after: The new graph.
        passes: Every run of a pass, in order.
        rounds: How many rounds there were.
        converged: Whether the last round changed nothing; if not, the bound on rounds was hit.
        journal: Rewrites, and refusals with their reasons.
    """

    graph: Graph
    before: GraphStatistics
    after: GraphStatistics
    passes: tuple[PassStatistics, ...]
    rounds: int
    converged: bool
    journal: Journal

    @property
    def seconds(self) -> float:
        return sum(item.seconds for item in self.passes)
