"""Tree of a page: nodes by the module that ran them, repeated modules together, and long lists in parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from npu_ir.core.node import OpNode, Value
from npu_ir.viz.boxes import relative_path
from npu_ir.viz.captions import count_caption
from npu_ir.viz.diagram import BoxKind
from npu_ir.viz.outline import Outline, Part

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph
# A layout of more boxes takes too long, and nobody reads it: longer lists are cut into parts.
MAX_ITEMS = 48
# More inputs, results or updates than this have a group of their own.
_MAX_ENDS = 8


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """An input, a result or an update of a graph."""

    kind: BoxKind
    title: str  # unique among those of its kind: a name, or the path of a result
    value: Value  # that enters or leaves, or the new content
    owner: OpNode | None  # of the region that it is an end of


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Items that a page shows as one box until it is opened.

    Attributes:
        kind: ``module``, ``repeat`` (of equal modules), ``part`` (of a long list), ``prologue``, ``node``
            (with regions), ``region``, ``inputs``, ``updates`` or ``results``.
        title: The module, relative to the one around it; what else it is.
        path: The module; "" for another kind of group.
    """

    kind: str
    title: str
    items: list[Item]
    path: str = ""

    def nodes(self) -> Iterator[OpNode]:
        """Yield the nodes in it, those in other groups included."""
        for item in self.items:
            if isinstance(item, Group):
                yield from item.nodes()
            elif isinstance(item, OpNode):
                yield item


Item: TypeAlias = OpNode | End | Group


def build_tree(graph: Graph) -> list[Item]:
    """Return the inputs, nodes, updates and results of ``graph`` in order, in time linear in its size."""
    inputs: list[Item] = [_end(graph, BoxKind.INPUT, value.target, value) for value in graph.inputs]
    updates: list[Item] = [
        _end(graph, BoxKind.UPDATE, target.target, value) for target, value in graph.updates.items()
    ]
    outline = Outline(graph)
    start = len(graph.prologue)
    prologue = _TreeBuilder(outline).items(Part((), 0, start), 1, ())
    body = _TreeBuilder(outline).items(Part((), start, len(outline.nodes)), 1, ())
    return [
        *_ends("inputs", "input", inputs),
        *([Group("prologue", "prologue", prologue)] if prologue else []),
        *cut(body),
        *_ends("updates", "update", updates),
        *_ends("results", "result", list(_results(graph))),
    ]


def _results(graph: Graph) -> Iterator[Item]:
    structure, leaves = graph.results
    for key, leaf in zip(structure.leaf_paths("result"), leaves, strict=True):
        if isinstance(leaf, Value):
            yield _end(graph, BoxKind.OUTPUT, f"output{key.removeprefix('result')}", leaf)


def _end(graph: Graph, kind: BoxKind, title: str, value: Value) -> End:
    return End(kind, title, value, graph.owner)


def _ends(kind: str, noun: str, ends: list[Item]) -> list[Item]:
    return [Group(kind, count_caption(len(ends), noun), cut(ends))] if len(ends) > _MAX_ENDS else ends


class _TreeBuilder:
    """Builder of the tree of an outline: a module is a group unless it ran a single node."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline

    def items(self, part: Part, level: int, around: tuple[str, ...]) -> list[Item]:
        """Return the content of a part, whose modules are of ``level``, in the module ``around``."""
        outline = self._outline
        if not part.length:
            return []
        if level == outline.last_level:
            return [self._node(node) for node in outline.nodes[part.start : part.stop]]
        items: list[Item] = []
        for run in outline.runs(outline.split(part, level), level):
            if len(run) == 1:
                items += self._module(run[0], level, around)
            else:
                items.append(self._repeat(run, level, around))
        return items

    def _repeat(self, run: Sequence[Part], level: int, around: tuple[str, ...]) -> Group:
        copies = [item for part in run for item in self._module(part, level, around)]
        first, last = (relative_path(part.path, around) for part in (run[0], run[-1]))
        return Group("repeat", f"{first} … {last}", cut(copies))

    def _module(self, part: Part, level: int, around: tuple[str, ...]) -> list[Item]:
        if len(part.path) < level:  # the module around ran these nodes itself
            return [self._node(node) for node in self._outline.nodes[part.start : part.stop]]
        if part.length == 1:
            return [self._node(self._outline.nodes[part.start])]
        if self._has_one_child(part, level):  # as a list of modules; its name becomes part of the child's
            return self.items(part, level + 1, around)
        items = cut(self.items(part, level + 1, part.path))
        return [Group("module", relative_path(part.path, around), items, ".".join(part.path))]

    def _has_one_child(self, part: Part, level: int) -> bool:
        """Return whether all nodes of a module are of one submodule, or of equal ones."""
        if level + 1 == self._outline.last_level:
            return False
        runs = self._outline.runs(self._outline.split(part, level + 1), level + 1)
        return len(runs) == 1 and len(runs[0][0].path) > level

    def _node(self, node: OpNode) -> Item:
        if not node.regions:
            return node
        regions: list[Item] = [
            Group("region", argument, build_tree(region)) for argument, region in node.regions.items()
        ]
        return Group("node", node.name, [node, *regions])


def cut(items: list[Item]) -> list[Item]:
    """Return ``items``, in groups of consecutive ones where there are too many for one picture."""
    if len(items) <= MAX_ITEMS:
        return items
    count = math.ceil(len(items) / MAX_ITEMS)
    size = math.ceil(len(items) / count)
    starts = range(0, len(items), size)
    parts = [items[start : start + size] for start in starts]
    return cut([Group("part", f"part {at} of {count}", part) for at, part in enumerate(parts, 1)])
