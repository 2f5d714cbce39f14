"""Result of running passes: the new graph, and statistics of each run of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import Graph
from npu_passes.core.journal import Journal
from npu_passes.manager.statistics import GraphStatistics


@dataclass(frozen=True, slots=True)
class PassStatistics:
    """Statistics of one run of a pass.

    Attributes:
        text: The pass with its options.
        round: The round it ran in, from 1.
        rewrites: The number of rewrites it made.
        seconds: Its duration, without the checks around it.
        before: The size of the graph before it.
        after: The size of the graph after it.
    """

    text: str
    round: int
    rewrites: int
    seconds: float
    before: GraphStatistics
    after: GraphStatistics


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of running passes.

    Attributes:
        graph: The new graph.
        before: The size of the original graph.
        after: The size of the new graph.
        passes: Every run of a pass, in order.
        rounds: The number of rounds.
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
