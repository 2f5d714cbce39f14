"""Outline of a large graph: nodes grouped by the module that ran them, and the part of it to draw.

Only consecutive nodes are grouped, so a module that ran twice is shown twice, and the groups, like the
nodes, form an acyclic graph.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npu_ir.core.literals import same_literal
from npu_ir.core.node import OpNode, Value
from npu_ir.errors import VisualizationError
from npu_ir.viz.captions import is_weight
from npu_ir.viz.layers import common_length

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph
# Deeper module paths are cut: no model nests so deep, and an artificial path must not cost more.
_MAX_DEPTH = 24
_NUMBER = re.compile(r"\d+")


def _path(phase: str, module: str) -> tuple[str, ...]:
    """Return the path of a module in an outline: phases of a training step are around all modules."""
    names = tuple(module.split(".", _MAX_DEPTH - 1)) if module else ()
    return (phase, *names) if phase else names


def _is_same_op(left: OpNode, right: OpNode) -> bool:
    return (
        (left.op_type, left.operands, len(left.inputs)) == (right.op_type, right.operands, len(right.inputs))
        and [value.type for value in left.outputs] == [value.type for value in right.outputs]
        and left.attrs.keys() == right.attrs.keys()
        and all(same_literal(left.attrs[name], right.attrs[name]) for name in left.attrs)
        and dict(left.regions) == dict(right.regions)
    )


@dataclass(slots=True, eq=False)
class Part:
    """Consecutive nodes of one module, or a single node."""

    path: tuple[str, ...]  # the module, to the level of this part; shorter for nodes that a parent ran itself
    start: int  # position of the first node
    stop: int  # position after the last node
    count: int = 1  # consecutive copies of these nodes
    parts: list[Part] = field(default_factory=list)  # of these nodes, one level deeper

    @property
    def length(self) -> int:
        return self.stop - self.start


class Outline:
    """The nodes of a graph, and their positions, as a tree of modules, built level by level.

    Level 0 is the whole graph, level ``d`` its modules down to depth ``d``, and the last level the nodes.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.position = {node: position for position, node in enumerate(self.nodes)}
        places = [(node.provenance.phase, node.provenance.module) for node in self.nodes]
        split = {place: _path(*place) for place in set(places)}
        self.paths = [split[place] for place in places]
        self.last_level = 1 + max(map(len, split.values()), default=0)
        # Length of the module path that a node shares with the node before it; `last_level` if equal.
        self._shared = [0] + [
            self.last_level if left is right else common_length(left, right)
            for left, right in itertools.pairwise(self.paths)
        ]

    def levels(self, last_level: int, *, fold: bool, max_parts: float = math.inf) -> list[list[Part]]:
        """Return the parts of each level, down to ``last_level`` or as deep as ``max_parts`` allows.

        With ``fold``, repeated blocks are merged into one part. Level 0 does not count for ``max_parts``.
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
        parts = self.split(part, level)
        return [_merge(run) for run in self.runs(parts, level)] if fold else parts

    def split(self, part: Part, level: int) -> list[Part]:
        """Return the modules of ``level`` in a part, and between them the nodes that it ran itself."""
        starts = [at for at in range(part.start + 1, part.stop) if self._shared[at] < level]
        return [
            Part(self.paths[start][:level], start, stop)
            for start, stop in itertools.pairwise([part.start, *starts, part.stop])
        ]

    def runs(self, parts: list[Part], level: int) -> list[list[Part]]:
        """Return consecutive parts of ``level``, with repetitions of one block in a list of their own."""
        # Each part is compared with its predecessor only, so a run of n copies costs n - 1 comparisons.
        runs = [[part] for part in parts[:1]]
        for previous, part in itertools.pairwise(parts):
            if (
                _are_siblings(previous.path, part.path, level)
                and part.length == previous.length
                and self.repeats(previous.start, part.length, first=len(runs[-1]) == 1)
            ):
                runs[-1].append(part)
            else:
                runs.append([part])
        return runs

    def repeats(self, start: int, length: int, *, first: bool) -> bool:
        """Return whether the ``length`` nodes at ``start + length`` repeat those at ``start``.

        Ops, attributes, types and the edges among them are equal. The values they read from outside have the
        same type, and are the same value or were produced at the same distance before the block. The earlier
        block may read from elsewhere if it is the ``first`` copy. A backward reads what forward blocks have
        produced, from the last to the first: these distances all change by the same number.
        """
        later = start + length
        shifts: set[int] = set()
        for offset in range(length):
            node, again = self.nodes[start + offset], self.nodes[later + offset]
            if not _is_same_op(node, again):
                return False
            for left, right in zip(node.inputs, again.inputs, strict=True):
                if self._is_of_other_phase(left, node) and self._is_of_other_phase(right, again):
                    shifts.add(self._relative_position(left, 0) - self._relative_position(right, 0))
                    if len(shifts) > 1 or left.index != right.index or left.type != right.type:
                        return False
                elif not self._has_same_source(left, right, start, later, first):
                    return False
        return True

    def _is_of_other_phase(self, value: Value, reader: OpNode) -> bool:
        producer = value.producer
        return producer is not None and producer.provenance.phase != reader.provenance.phase

    def _has_same_source(self, left: Value, right: Value, start: int, later: int, first: bool) -> bool:
        if left is right:
            return True
        if left.type != right.type:
            return False
        if is_weight(left) or is_weight(right):
            return left.kind is right.kind
        offsets = self._relative_position(left, start), self._relative_position(right, later)
        if first and max(offsets) < 0:
            return True
        return offsets[0] == offsets[1] and left.index == right.index

    def _relative_position(self, value: Value, start: int) -> int:
        """Return the position of a value's producer relative to ``start``; inputs come before all nodes."""
        return -1 - len(self.nodes) if value.producer is None else self.position[value.producer] - start


def _merge(run: list[Part]) -> Part:
    run[0].count = len(run)
    return run[0]


def _are_siblings(left: tuple[str, ...], right: tuple[str, ...], level: int) -> bool:
    """Return whether the names of two sibling modules differ in numbers only: ``layers.0``, ``layers.1``."""
    if not len(left) == len(right) == level:
        return False
    return _NUMBER.sub("#", left[-1]) == _NUMBER.sub("#", right[-1])


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of an outline to draw."""

    levels: list[list[Part]]  # those of the last one become boxes
    room: int  # for such boxes; the rest is one box with the number of missing nodes

    @property
    def depth(self) -> int:
        return len(self.levels) - 1


def select(outline: Outline, max_nodes: int, depth: int | None) -> Selection:
    """Return a selection of at most ``max_nodes`` boxes, to ``depth`` or else as deep as possible.

    Repeated blocks are merged only if the boxes would not suffice otherwise.

    Raises:
        VisualizationError: ``max_nodes`` is less than 2 or ``depth`` less than 0.
    """
    if max_nodes < 2:
        raise VisualizationError(f"max_nodes={max_nodes}: a drawing has room for 2 boxes at least")
    if depth is not None and depth < 0:
        raise VisualizationError(f"depth={depth} is negative", fix="use 0 for one box, 1 for the top modules")
    if depth is None:
        levels = _choose_levels(outline, max_nodes)
    else:
        level = min(depth, outline.last_level)
        levels = outline.levels(level, fold=False)
        if len(levels[-1]) > max_nodes:
            levels = outline.levels(level, fold=True)
    return Selection(levels, max_nodes if len(levels[-1]) <= max_nodes else max_nodes - 1)


def _choose_levels(outline: Outline, max_nodes: int) -> list[list[Part]]:
    plain = outline.levels(outline.last_level, fold=False, max_parts=max_nodes)
    folded = outline.levels(outline.last_level, fold=True, max_parts=max_nodes)
    deepest = max(plain, folded, key=len)
    if len(deepest[-1]) == 1 and deepest[-1][0].length == len(outline.paths) > 1:
        # One box for everything says nothing: the beginning of its content is more useful.
        return outline.levels(len(deepest), fold=True)
    return deepest
