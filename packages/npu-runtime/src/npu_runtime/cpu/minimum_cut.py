"""The cheapest way to part the nodes of a network in two.

Source: Dinic, "Algorithm for solution of a problem of maximum flow in a network" (1970).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator

UNLIMITED = 1 << 62


class Network:
    """Nodes with edges, each of which costs something if it leads from the source's part to the sink's.

    Attributes:
        source: The node that is in the one part.
        sink: The node that is in the other.
    """

    def __init__(self, source: Hashable, sink: Hashable) -> None:
        self.source = source
        self.sink = sink
        self._left: dict[Hashable, dict[Hashable, int]] = {source: {}, sink: {}}

    def add(self, start: Hashable, end: Hashable, cost: int) -> None:
        """Add an edge, or its cost to an edge that is there; a cost of `UNLIMITED` is never paid."""
        forth = self._left.setdefault(start, {})
        forth[end] = min(forth.get(end, 0) + cost, UNLIMITED)
        self._left.setdefault(end, {}).setdefault(start, 0)

    def source_side(self) -> set[Hashable]:
        """Return the nodes in the source's part where the cut is cheapest: the fewest that can be."""
        levels = self._levels()
        while self.sink in levels:
            edges = {node: iter(list(self._left[node])) for node in levels}
            while self._push(levels, edges):
                pass
            levels = self._levels()
        return set(levels)

    def _levels(self) -> dict[Hashable, int]:
        """Return the nodes that can be reached from the source, with the number of edges to them."""
        levels, front = {self.source: 0}, [self.source]
        for node in front:  # which grows
            for end, left in self._left[node].items():
                if left and end not in levels:
                    levels[end] = levels[node] + 1
                    front.append(end)
        return levels

    def _push(self, levels: dict[Hashable, int], edges: dict[Hashable, Iterator[Hashable]]) -> bool:
        """Send as much as fits along one of the shortest paths to the sink; return whether there is one left."""
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
            if self._left[start][end]:  # it may be used again
                edges[start] = _again(end, edges[start])
        return True


def _again(first: Hashable, others: Iterator[Hashable]) -> Iterator[Hashable]:
    yield first
    yield from others
