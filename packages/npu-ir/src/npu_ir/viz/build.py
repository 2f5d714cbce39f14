"""Construction of a diagram from a graph."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from npu_ir.core.node import Value
from npu_ir.graph.requirement import require_graph
from npu_ir.viz.boxes import ArgumentBox, input_boxes, output_boxes, update_boxes, weight_boxes
from npu_ir.viz.captions import count_caption, is_weight, make_printable, parameters_caption, values_caption
from npu_ir.viz.diagram import Box, Diagram, Edge, Frame
from npu_ir.viz.node_boxes import NodeBoxes
from npu_ir.viz.outline import Outline, Selection, select

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def build_diagram(graph: Graph, max_nodes: int, depth: int | None, weights: bool) -> Diagram:
    """Return the diagram of ``graph``, in time linear in its size; arguments as for `to_mermaid`."""
    require_graph(graph)
    outline = Outline(graph)
    selection = select(outline, max_nodes, depth)
    nodes = NodeBoxes(outline, selection, name_weights=weights)
    inputs = input_boxes(graph)
    named = weight_boxes(_weight_readers(nodes)) if weights else []
    arguments = {value: group.box.id for group in (*inputs, *named) for value in group.values}

    def source_of(value: Value) -> str | None:
        if value.producer is None:
            return arguments.get(value)
        return nodes.exit_box(nodes.box_of[outline.position[value.producer]])

    outputs, updates = output_boxes(graph), update_boxes(graph, source_of)
    return Diagram(
        make_printable(graph.name),
        _summary(graph, outline, selection),
        (
            *(group.box for group in inputs),
            *_insert_arguments(nodes.items, named, updates),
            *(group.box for group in outputs),
        ),
        (*_edges(nodes, [*outputs, *updates], source_of), *nodes.region_edges),
    )


def _insert_arguments(
    items: Sequence[Box | Frame], weights: Sequence[ArgumentBox], updates: Sequence[ArgumentBox]
) -> Iterator[Box | Frame]:
    """Yield the items, with weights before their readers and updates after their producers.

    A weight with one reader, and an update with a producer, is drawn in the frames of that box.
    """
    before: defaultdict[str, list[Box]] = defaultdict(list)
    after: defaultdict[str, list[Box]] = defaultdict(list)
    for groups, boxes in ((weights, before), (updates, after)):
        for group in groups:
            boxes[group.near[0] if len(group.near) == 1 else ""].append(group.box)
    yield from before[""]
    yield from _insert_boxes(items, before, after)
    yield from after[""]


def _insert_boxes(
    items: Sequence[Box | Frame], before: Mapping[str, Sequence[Box]], after: Mapping[str, Sequence[Box]]
) -> Iterator[Box | Frame]:
    for item in items:
        if isinstance(item, Frame):
            yield Frame(item.id, item.title, tuple(_insert_boxes(item.items, before, after)))
        else:
            yield from (*before.get(item.id, ()), item, *after.get(item.id, ()))


def _weight_readers(nodes: NodeBoxes) -> dict[Value, list[str]]:
    readers: dict[Value, dict[str, None]] = {}
    for box, values in nodes.iterate_reads():
        for value in filter(is_weight, values):
            readers.setdefault(value, {})[box] = None
    return {value: list(boxes) for value, boxes in readers.items()}


def _edges(
    nodes: NodeBoxes, results: Sequence[ArgumentBox], source_of: Callable[[Value], str | None]
) -> Iterator[Edge]:
    carried: defaultdict[tuple[str, str], dict[Value, None]] = defaultdict(dict)
    of_results = ((result.box.id, result.values) for result in results)
    for target, values in itertools.chain(nodes.iterate_reads(), of_results):
        for value in values:
            source = source_of(value)
            if source is not None and source != target:
                carried[source, target][value] = None
    typed_boxes = {result.box.id for result in results}
    for (source, target), carried_values in carried.items():
        is_typed = target in typed_boxes or all(value.producer is None for value in carried_values)
        yield Edge(source, target, "" if is_typed else values_caption(list(carried_values)))


def _summary(graph: Graph, outline: Outline, selection: Selection) -> str:
    in_regions = sum(len(part) for part in graph.graphs()) - len(graph)
    parts = [
        count_caption(len(graph), "node"),
        f"{len(graph.prologue)} of them in the prologue" if graph.prologue else "",
        f"{in_regions} more in regions" if in_regions else "",
        parameters_caption(graph.parameters.values()),
    ]
    if selection.depth < outline.last_level and len(graph):
        parts.append(f"modules opened to depth {selection.depth}")
    return ", ".join(filter(None, parts))
