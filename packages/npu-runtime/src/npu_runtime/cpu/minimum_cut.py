"""Minimum cut of a network, by Dinic's maximum flow algorithm.

Source: Dinic, "Algorithm for solution of a problem of maximum flow in a network" (1970). The nodes that the
source reaches in the residual network of a maximum flow are the source side of a minimum cut (Ford and
Fulkerson, 1956).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator

UNLIMITED = 1 << 62


class Network:
    """Flow network; the cost of an edge is paid if it leads from the source side to the sink side.

    Attributes:
        source: The node that is always on the source side.
        sink: The node that is always on the sink side.
    """

    def __init__(self, source: Hashable, sink: Hashable) -> None:
        self.source = source
        self.sink = sink
        # Residual capacities. For each edge there is a reverse edge, whose capacity is the flow that can be
        # undone.
        self._left: dict[Hashable, dict[Hashable, int]] = {source: {}, sink: {}}

    def add(self, start: Hashable, end: Hashable, cost: int) -> None:
        """Add an edge, or a cost to an existing edge; an edge with the cost `UNLIMITED` is never cut."""
        forth = self._left.setdefault(start, {})
        forth[end] = min(forth.get(end, 0) + cost, UNLIMITED)
        self._left.setdefault(end, {}).setdefault(start, 0)

    def source_side(self) -> set[Hashable]:
        """Return the source side of the minimum cut; of several, the one with the smallest source side."""
        # Each phase sends a blocking flow along shortest paths, after which the sink is farther away: at
        # most as many phases as nodes. `edges` are the current-arc iterators of a phase: a dead end is not
        # tried twice.
        levels = self._levels()
        while self.sink in levels:
            edges = {node: iter(list(self._left[node])) for node in levels}
            while self._push(levels, edges):
                pass
            levels = self._levels()
        return set(levels)

    def _levels(self) -> dict[Hashable, int]:
        """Return the nodes reachable in the residual network, with their distance in edges."""
        levels, front = {self.source: 0}, [self.source]
        for node in front:  # grows in the loop: breadth-first search
            for end, left in self._left[node].items():
                if left and end not in levels:
                    levels[end] = levels[node] + 1
                    front.append(end)
        return levels

    def _push(self, levels: dict[Hashable, int], edges: dict[Hashable, Iterator[Hashable]]) -> bool:
        """Send the maximum flow along one shortest path; return False if there is no such path."""
        path = [self.source]
        while path[-1] != self.sink:
            node = path[-1]
            end = next(
                (end for end in edges[node] if self._left[node][end] and levels.get(end) == levels[node] + 1),
                None,
            )
            if end is not None:
                path.append(end)
            elif len(path) == 1:
                return False
            else:
                path.pop()
        steps = list(itertools.pairwise(path))
        amount = min(self._left[start][end] for start, end in steps)
        for start, end in steps:
            self._left[start][end] -= amount
            self._left[end][start] += amount
            if self._left[start][end]:  # not saturated: another path may use it
                edges[start] = _prepend(end, edges[start])
        return True


def _prepend(first: Hashable, others: Iterator[Hashable]) -> Iterator[Hashable]:
    yield first
    yield from others
