"""Outline of a large graph: nodes grouped by the module that ran them.

Only consecutive nodes are grouped, so a module that ran twice is shown twice, and the groups, like the
nodes, form an acyclic graph.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npu_ir.viz.repeats import NodeOrder

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

# Deeper module paths are cut: no model nests so deep, and an artificial path must not cost more.
_MAX_DEPTH = 24
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True, eq=False)
class Part:
    """Consecutive nodes of one module, or a single node.

    Attributes:
        path: The module, down to the level of this part; shorter for nodes that a parent ran itself.
        start: Position of the first node.
        stop: Position after the last node.
        count: Number of consecutive copies of these nodes, at least 1.
        parts: The parts of these nodes, one level deeper.
    """

    path: tuple[str, ...]
    start: int
    stop: int
    count: int = 1
    parts: list[Part] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.stop - self.start


class Outline:
    """The nodes of a graph as a tree of modules, built level by level.

    Level 0 is the whole graph, level ``d`` its modules down to depth ``d``, and the last level the nodes.
    """

    def __init__(self, graph: Graph) -> None:
        nodes = graph.nodes
        self.node_order = NodeOrder(nodes, {node: position for position, node in enumerate(nodes)})
        names = [node.provenance.module for node in nodes]
        split = {name: tuple(name.split(".", _MAX_DEPTH - 1)) if name else () for name in set(names)}
        self.paths = [split[name] for name in names]
        self.last_level = 1 + max(map(len, split.values()), default=0)
        # Length of the module path that a node shares with the node before it; `last_level` if equal.
        self._shared = [0] + [
            self.last_level if left is right else _common_length(left, right)
            for left, right in itertools.pairwise(self.paths)
        ]

    def levels(self, last_level: int, *, fold: bool, max_parts: float = math.inf) -> list[list[Part]]:
        """Return the parts of each level, down to ``last_level`` or as deep as ``max_parts`` allows.

        Args:
            last_level: The deepest level to return.
            fold: Merge repeated blocks into one part.
            max_parts: Maximum number of parts of any level but level 0.
        """
        levels = [[Part((), 0, len(self.paths))] if self.paths else []]
        while len(levels) <= last_level:
            # A graph may have very many nodes: count them before a part is created for each.
            nodes = sum(part.length for part in levels[-1]) if len(levels) == self.last_level else 0
            if nodes > max_parts:
                break
            parts = []
            for part in levels[-1]:
                part.parts = self._split_part(part, len(levels), fold)
                parts += part.parts
            if len(parts) > max_parts:
                break
            levels.append(parts)
        return levels

    def _split_part(self, part: Part, level: int, fold: bool) -> list[Part]:
        if level == self.last_level:
            return [Part(self.paths[at], at, at + 1) for at in range(part.start, part.stop)]
        starts = [at for at in range(part.start + 1, part.stop) if self._shared[at] < level]
        parts = [
            Part(self.paths[start][:level], start, stop)
            for start, stop in itertools.pairwise([part.start, *starts, part.stop])
        ]
        return self._fold_repeats(parts, level) if fold else parts

    def _fold_repeats(self, parts: list[Part], level: int) -> list[Part]:
        # Each part is compared with its predecessor only, so a run of n copies costs n - 1 comparisons.
        folded: list[Part] = []
        previous: Part | None = None
        for part in parts:
            if previous is not None and _are_siblings(previous.path, part.path, level):
                group = folded[-1]
                same_length = part.length == previous.length
                if same_length and self.node_order.repeats(
                    previous.start, part.length, first=group.count == 1
                ):
                    group.count += 1
                    previous = part
                    continue
            folded.append(part)
            previous = part
        return folded


def _common_length(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    )


def _are_siblings(left: tuple[str, ...], right: tuple[str, ...], level: int) -> bool:
    """Return whether the names of two sibling modules differ in numbers only: ``layers.0``, ``layers.1``."""
    if not len(left) == len(right) == level:
        return False
    return _NUMBER.sub("#", left[-1]) == _NUMBER.sub("#", right[-1])
