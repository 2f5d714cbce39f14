"""Boxes and frames of a graph's nodes and of their regions, and the box of each node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npu_ir.core.node import OpNode, Value
from npu_ir.viz.boxes import op_box, relative_path, weights_of
from npu_ir.viz.captions import (
    count_caption,
    is_weight,
    make_printable,
    ops_caption,
    parameters_caption,
    regions_caption,
    type_caption,
    values_caption,
)
from npu_ir.viz.diagram import Box, BoxKind, Edge, Frame
from npu_ir.viz.outline import Outline, Part, Selection

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_MAX_DEPTH = 6
_MAX_LINES = 3


class RegionBoxes:
    """Boxes, frames and edges for the regions in a graph.

    A frame holds the box of the node that owns the regions, a frame for each region, and a box for the
    results of the node. The inputs of a region come from the first box; its results go through a box of
    their own to the last one.
    """

    def __init__(self, room: int, new_frame: Callable[[], str]) -> None:
        self.edges: list[Edge] = []  # inside regions, and between a node and its regions
        self.ends: dict[str, str] = {}  # by the box of a node: that of its results
        self._room = room  # for boxes of nodes of regions
        self._new_frame = new_frame
        self._num_boxes = 0

    def frame_node(self, node: OpNode, box: Box, around: tuple[str, ...]) -> Box | Frame:
        """Return the box of ``node``, in a frame with its regions; it only lists them if they do not fit."""
        if not node.regions:
            return box
        count = sum(len(part) for region in node.regions.values() for part in region.graphs())
        if count > self._room:
            return _list_regions(box, node)
        self._room -= count
        return self._open_node(node, box, around, 1)

    def _open_node(self, node: OpNode, box: Box, around: tuple[str, ...], depth: int) -> Box | Frame:
        if not node.regions:
            return box
        if depth > _MAX_DEPTH:
            return _list_regions(box, node)
        frames = []
        for argument, region in node.regions.items():
            id, items = self._new_frame(), tuple(self._items(region, box.id, around, depth))
            frames.append(Frame(id, make_printable(argument), items))
        title = make_printable(f"results of {node.name}")
        end = Box(self._new_box_id(), BoxKind.OP, title, _type_lines(node.outputs))
        self.ends[box.id] = end.id
        self.edges += [Edge(frame.items[-1].id, end.id) for frame in frames]
        return Frame(self._new_frame(), make_printable(node.name), (box, *frames, end))

    def _items(self, region: Graph, owner: str, around: tuple[str, ...], depth: int) -> Iterable[Box | Frame]:
        sources = dict.fromkeys(region.inputs, owner)
        for node in region.nodes:
            module = node.provenance.module
            path = tuple(module.split(".")) if module else ()
            box = op_box(self._new_box_id(), node, path, around)
            yield self._open_node(node, box, around, depth + 1)
            self._connect(node.inputs, box.id, sources)
            sources.update(dict.fromkeys(node.outputs, self.ends.get(box.id, box.id)))
        end = Box(self._new_box_id(), BoxKind.OUTPUT, "returns", _type_lines(region.outputs))
        yield end
        if not any(value in sources for value in region.outputs):
            self.edges.append(Edge(owner, end.id))
        self._connect(region.outputs, end.id, sources, is_typed=True)

    def _connect(
        self, values: Iterable[Value], target: str, sources: Mapping[Value, str], *, is_typed: bool = False
    ) -> None:
        carried: defaultdict[str, dict[Value, None]] = defaultdict(dict)
        for value in values:
            if value in sources:
                carried[sources[value]][value] = None
        for source, passed in carried.items():
            self.edges.append(Edge(source, target, "" if is_typed else values_caption(list(passed))))

    def _new_box_id(self) -> str:
        self._num_boxes += 1
        return f"r{self._num_boxes - 1}"


def _type_lines(values: Sequence[Value]) -> tuple[str, ...]:
    lines = [type_caption(value.type) for value in values]
    return tuple(lines if len(lines) <= _MAX_LINES else [*lines[:_MAX_LINES], "..."])


def _list_regions(box: Box, node: OpNode) -> Box:
    return replace(box, details=(*box.details, regions_caption(node)))


class NodeBoxes:
    """Boxes and frames for the nodes of a graph."""

    def __init__(self, outline: Outline, selection: Selection, *, name_weights: bool) -> None:
        self._outline = outline
        self._nodes = outline.nodes
        self._selection = selection
        self._name_weights = name_weights
        # Start of the first copy of the block that a node repeats; None for nodes of first copies.
        self._first_copy: list[int | None] = [None] * len(self._nodes)
        self._cut = len(self._nodes)
        self._num_boxes = self._num_frames = 0
        self._regions = RegionBoxes(
            max(selection.room - len(selection.levels[-1]), 0), new_frame=self._new_frame_id
        )
        # Box id by node position; a repeated block shares the boxes of its first copy.
        self.box_of = [""] * len(self._nodes)
        items = [item for part in selection.levels[0] for item in self._draw_part(part, 0, ())]
        self.items: tuple[Box | Frame, ...] = (*items, *self._overflow_box())  # boxes and frames, in order

    @property
    def region_edges(self) -> list[Edge]:
        """Edges inside regions, and those between a node and its regions."""
        return self._regions.edges

    def exit_box(self, box: str) -> str:
        """Return the box that results leave from; not ``box`` itself if it is drawn with its regions."""
        return self._regions.ends.get(box, box)

    def iterate_reads(self) -> Iterator[tuple[str, Sequence[Value]]]:
        """Yield the box of each node and the values that the box reads for it.

        Further copies of a block add only values produced before the first copy: what a copy reads from
        the previous copy, and its own weights, are not shown.
        """
        position = self._outline.position
        for at, node in enumerate(self._nodes):
            start = self._first_copy[at]
            if start is None:
                yield self.box_of[at], node.inputs
            else:
                earlier = [
                    value
                    for value in node.inputs
                    if not is_weight(value) and (value.producer is None or position[value.producer] < start)
                ]
                yield self.box_of[at], earlier

    def _draw_part(self, part: Part, level: int, around: tuple[str, ...]) -> list[Box | Frame]:
        """Return the boxes and frames of ``part``, which is drawn in the frame of the module ``around``."""
        # A part with a shorter path holds nodes that a parent module ran itself: it gets no frame.
        framed = part.count > 1 or len(part.path) == level > 0
        inside = part.path if framed and (part.count > 1 or len(part.parts) > 1) else around
        items: list[Box | Frame] = []
        if level == self._selection.depth:
            items += self._draw_boxes(part, around)
        else:
            for child in part.parts:
                items += self._draw_part(child, level + 1, inside)
        if part.count > 1:
            self._share_boxes(part)
        if level == self._selection.depth or not framed or not items or (len(items) == 1 == part.count):
            return items
        return [Frame(self._new_frame_id(), self._module_title(part, around), tuple(items))]

    def _new_frame_id(self) -> str:
        self._num_frames += 1
        return f"f{self._num_frames - 1}"

    def _draw_boxes(self, part: Part, around: tuple[str, ...]) -> list[Box | Frame]:
        if self._num_boxes == self._selection.room:
            self._cut = min(self._cut, part.start)
            return []
        id = self._new_box_id(part.start, part.stop)
        nodes = self._nodes[part.start : part.stop]
        if len(nodes) == 1:
            path, name_weights = self._outline.paths[part.start], self._name_weights
            box = op_box(id, nodes[0], path, around, name_weights=name_weights, count=part.count)
            return [self._regions.frame_node(nodes[0], box, around)]
        return [self._module_box(id, nodes, part, around)]

    def _new_box_id(self, start: int, stop: int) -> str:
        id = f"n{self._num_boxes}"
        self._num_boxes += 1
        self.box_of[start:stop] = [id] * (stop - start)
        self._first_copy[start:stop] = [None] * (stop - start)
        return id

    def _share_boxes(self, part: Part) -> None:
        end = part.start + part.count * part.length
        self.box_of[part.start : end] = self.box_of[part.start : part.stop] * part.count
        self._first_copy[part.stop : end] = [part.start] * (end - part.stop)

    def _overflow_box(self) -> list[Box]:
        missing = len(self._nodes) - self._cut
        if not missing:
            return []
        id = self._new_box_id(self._cut, len(self._nodes))
        return [Box(id, BoxKind.MORE, f"... {missing} more node{'' if missing == 1 else 's'}")]

    def _module_box(self, id: str, nodes: Sequence[OpNode], part: Part, around: tuple[str, ...]) -> Box:
        title, ops = self._module_title(part, around), ops_caption(nodes)
        if len(part.path) < self._selection.depth:
            title, ops = ops, f"in {title}" if title else ""
        details = [count_caption(len(nodes), "op"), ops]
        if not self._name_weights:
            details.append(parameters_caption(weights_of(nodes)))
        tooltip = make_printable(".".join(part.path), 400)
        return Box(id, BoxKind.MODULE, title or "all modules", tuple(filter(None, details)), tooltip)

    def _module_title(self, part: Part, around: tuple[str, ...]) -> str:
        title = make_printable(relative_path(part.path, around))
        if part.count == 1:
            return title
        last = self._outline.paths[part.start + (part.count - 1) * part.length][len(part.path) - 1]
        return f"{title} ... {make_printable(last)} (x{part.count})"
