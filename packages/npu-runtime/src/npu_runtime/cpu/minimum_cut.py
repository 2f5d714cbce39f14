"""Minimum cuts of networks: the cheapest edges whose removal parts two nodes."""

from __future__ import annotations

from collections.abc import Hashable


class Network:
    """A directed network of edges with capacities, which are integers, so that sums are exact.

    Source: Dinitz, "Algorithm for solution of a problem of maximum flow in networks" (1970).
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []  # by node: the numbers of the edges that leave it
        # By edge. Number 2 * i + 1 is edge 2 * i backwards: its capacity is the flow that it can give back.
        self._ends: list[int] = []
        self._left: list[int] = []
        self._unlimited: list[int] = []

    def add_edge(self, start: Hashable, end: Hashable, capacity: int | None = None) -> None:
        """Add an edge, without a limit if ``capacity`` is None. Every path to the sink has a limited edge."""
        first, last, edge = self._number(start), self._number(end), len(self._ends)
        self._edges[first].append(edge)
        self._edges[last].append(edge + 1)
        self._ends += [last, first]
        self._left += [capacity or 0, 0]
        if capacity is None:
            self._unlimited.append(edge)

    def side_of_source(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """Return the nodes on the side of ``source`` in the smallest of all minimum cuts.

        These are what the source reaches beside a maximum flow (Ford and Fulkerson, 1956).
        """
        for node in (source, sink):
            self._number(node)
        limit = sum(self._left) + 1
        for edge in self._unlimited:
            self._left[edge] = limit
        first, last = self._numbers[source], self._numbers[sink]
        levels = self._levels(first)
        while levels[last] >= 0:
            self._fill(first, last, levels)
            levels = self._levels(first)
        return {node for node, number in self._numbers.items() if levels[number] >= 0}

    def _number(self, node: Hashable) -> int:
        if node not in self._numbers:
            self._numbers[node] = len(self._edges)
            self._edges.append([])
        return self._numbers[node]

    def _levels(self, first: int) -> list[int]:
        """Return the distance of each node from the first by edges with capacity left; -1 without a path."""
        levels = [-1] * len(self._edges)
        levels[first] = 0
        pending = [first]
        for node in pending:  # grows meanwhile: breadth first
            for edge in self._edges[node]:
                end = self._ends[edge]
                if self._left[edge] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    pending.append(end)
        return levels

    def _fill(self, first: int, last: int, levels: list[int]) -> None:
        """Send flow along all shortest paths, until none has capacity left. Not recursive: paths are long."""
        tried = [0] * len(self._edges)  # by node: the number of its edges that lead no further
        path: list[int] = []
        node = first
        while True:
            if node == last:
                flow = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= flow
                    self._left[edge ^ 1] += flow
                full = next(place for place, edge in enumerate(path) if not self._left[edge])
                node = self._ends[path[full] ^ 1]
                del path[full:]
            edges = self._edges[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if self._left[edge] and levels[self._ends[edge]] == levels[node] + 1:
                    path.append(edge)
                    node = self._ends[edge]
                    break
                tried[node] += 1
            else:
                if not path:
                    return
                node = self._ends[path.pop() ^ 1]
                tried[node] += 1
