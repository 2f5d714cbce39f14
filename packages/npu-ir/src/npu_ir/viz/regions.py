"""Frames for the regions of a node: the branches of a conditional, the body of a loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npu_ir.core.node import OpNode, Value
from npu_ir.viz.captions import make_printable, regions_caption, type_caption, values_caption
from npu_ir.viz.diagram import Box, BoxKind, Edge, Frame
from npu_ir.viz.op_boxes import op_box

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_MAX_DEPTH = 6
_MAX_LINES = 3


class RegionBoxes:
    """Boxes, frames and edges for the regions in a graph.

    A frame holds the box of the node that owns the regions, a frame for each region, and a box for the
    results of the node. The inputs of a region come from the first box; its results go through a box of
    their own to the last one.

    Args:
        room: Maximum number of boxes for nodes of regions.
        new_frame: Returns a new frame id.

    Attributes:
        edges: Edges inside regions, and between a node and its regions.
        ends: The box of the results of each node that is drawn with its regions, by the node's box.
    """

    def __init__(self, room: int, new_frame: Callable[[], str]) -> None:
        self.edges: list[Edge] = []
        self.ends: dict[str, str] = {}
        self._room = room
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
        frames = [
            Frame(
                self._new_frame(), make_printable(argument), tuple(self._items(region, box.id, around, depth))
            )
            for argument, region in node.regions.items()
        ]
        end = Box(
            self._new_box_id(),
            BoxKind.OP,
            make_printable(f"results of {node.name}"),
            _type_lines(node.outputs),
        )
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
