"""What a drawing shows of a large graph: its nodes gathered by the module that ran them.

Nodes are gathered only while they stand next to each other, so a module that ran twice is shown
twice, and what is shown depends on each other in one direction only, as the nodes do.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npu_ir.viz.repeats import Program

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

# Deeper module paths are cut: no model nests so deep, and a made-up path must not cost more.
_MAX_DEPTH = 24
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True, eq=False)
class Part:
    """Nodes that ran one after the other in one module, or a single node.

    Attributes:
        path: The module, down to the level of this part; shorter for what its parents ran themselves.
        start: Position of the first node.
        stop: Position behind the last node.
        count: How often these nodes stand there, one copy right behind the other.
        parts: The same, one level deeper.
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
    """The nodes of a graph as a tree of modules, grown level by level.

    Level 0 is the whole graph, level ``d`` its modules down to depth ``d``, and the last level the nodes.
    """

    def __init__(self, graph: Graph) -> None:
        nodes = graph.nodes
        self.program = Program(nodes, {node: position for position, node in enumerate(nodes)})
        names = [node.provenance.module for node in nodes]
        split = {name: tuple(name.split(".", _MAX_DEPTH - 1)) if name else () for name in set(names)}
        self.paths = [split[name] for name in names]
        self.last_level = 1 + max(map(len, split.values()), default=0)
        # How many modules a node shares with the one before it; all of them when they are equal.
        self._shared = [0] + [
            self.last_level if left is right else _shared(left, right)
            for left, right in itertools.pairwise(self.paths)
        ]

    def levels(self, last_level: int, *, fold: bool, max_parts: float = math.inf) -> list[list[Part]]:
        """Return the parts of each level, down to ``last_level`` or as deep as ``max_parts`` allows.

        Args:
            last_level: The deepest level to return.
            fold: Gather blocks that repeat into one part.
            max_parts: The most parts of any level but level 0.
        """
        levels = [[Part((), 0, len(self.paths))] if self.paths else []]
        while len(levels) <= last_level:
            # Nodes may be very many: they are counted before there is a part for each.
            nodes = sum(part.length for part in levels[-1]) if len(levels) == self.last_level else 0
            if nodes > max_parts:
                break
            parts = []
            for part in levels[-1]:
                part.parts = self._deeper(part, len(levels), fold)
                parts += part.parts
            if len(parts) > max_parts:
                break
            levels.append(parts)
        return levels

    def _deeper(self, part: Part, level: int, fold: bool) -> list[Part]:
        if level == self.last_level:
            return [Part(self.paths[at], at, at + 1) for at in range(part.start, part.stop)]
        starts = [at for at in range(part.start + 1, part.stop) if self._shared[at] < level]
        parts = [
            Part(self.paths[start][:level], start, stop)
            for start, stop in itertools.pairwise([part.start, *starts, part.stop])
        ]
        return self._folded(parts, level) if fold else parts

    def _folded(self, parts: list[Part], level: int) -> list[Part]:
        folded: list[Part] = []
        previous: Part | None = None
        for part in parts:
            if previous is not None and _siblings(previous.path, part.path, level):
                group = folded[-1]
                same_length = part.length == previous.length
                if same_length and self.program.repeats(previous.start, part.length, first=group.count == 1):
                    group.count += 1
                    previous = part
                    continue
            folded.append(part)
            previous = part
        return folded


def _shared(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    )


def _siblings(left: tuple[str, ...], right: tuple[str, ...], level: int) -> bool:
    """Return whether two modules of one parent are numbered alike: ``layers.0``, ``layers.1``."""
    if not len(left) == len(right) == level:
        return False
    return _NUMBER.sub("#", left[-1]) == _NUMBER.sub("#", right[-1])
