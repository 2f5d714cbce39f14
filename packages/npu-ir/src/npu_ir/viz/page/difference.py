"""Documents of a difference: both graphs, with the status and the partner of each box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from npu_ir.core.node import OpNode, Value
from npu_ir.diff.entries import NodeDiff, Status, status_of
from npu_ir.diff.graph_diff import GraphDiff
from npu_ir.viz.diagram import BoxKind
from npu_ir.viz.page.document import GraphDocument
from npu_ir.viz.page.tree import End

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def diff_documents(diff: GraphDiff) -> list[GraphDocument]:
    """Return the documents of the graphs before and after; boxes have ``status`` and ``partner``."""
    documents = [GraphDocument(diff.a), GraphDocument(diff.b)]
    for part in diff.diffs():
        for item in part.nodes:
            _mark_node(item, *documents)
            _mark_regions(item, *documents)
    _mark_ends(diff, *documents)
    return documents


def diff_summary(diff: GraphDiff) -> str:
    return ", ".join(f"{diff.count(status):,} {status.value}" for status in Status)


def _mark_node(item: NodeDiff, a: GraphDocument, b: GraphDocument) -> None:
    status: dict[str, Any] = {"status": item.status.value}
    if item.changes:
        status["changes"] = list(item.changes)
    if item.was:
        status["was"] = list(item.was)
    if item.merged_into:
        status["merged"] = item.merged_into
    before, after = _place(a, item.a), _place(b, item.b)
    for document, place, partner in ((a, before, after), (b, after, before)):
        if place is not None:
            document.boxes[place].update(status)
            if partner is not None:
                document.boxes[place]["partner"] = partner


def _place(document: GraphDocument, node: OpNode | None) -> int | None:
    return None if node is None else document.position[node]


def _mark_regions(item: NodeDiff, a: GraphDocument, b: GraphDocument) -> None:
    """Mark the nodes of regions that do not differ, or that only one of the nodes has."""
    sides: list[Mapping[str, Graph]] = [{} if node is None else node.regions for node in (item.a, item.b)]
    for name in {**sides[0], **sides[1]}:
        if name in item.regions:
            continue
        before, after = (side.get(name) for side in sides)
        status = status_of(before, after, ()).value
        for document, region in ((a, before), (b, after)):
            for node in () if region is None else _nodes(region):
                document.boxes[document.position[node]]["status"] = status


def _nodes(graph: Graph) -> Iterator[OpNode]:
    return (node for part in graph.graphs() for node in part.nodes)


def _mark_ends(diff: GraphDiff, a: GraphDocument, b: GraphDocument) -> None:
    back = {other: value for value, other in diff.values.items()}
    before = {_key(end, {}): position for end, position in _ends(a)}
    changed = {(line.kind, line.name) for line in diff.lines}
    for end, position in _ends(b):
        partner = before.pop(_key(end, back), None)
        box = b.boxes[position]
        if partner is None:
            box["status"] = Status.ADDED.value
            continue
        kind = "return" if end.kind is BoxKind.OUTPUT else end.kind.value
        names = {end.title, end.value.name, end.title.replace("output", "result", 1)}
        is_changed = any((kind, name) in changed for name in names)
        status = (Status.CHANGED if is_changed else Status.UNCHANGED).value
        box.update(status=status, partner=partner)
        a.boxes[partner].update(status=status, partner=position)
    for position in before.values():
        a.boxes[position]["status"] = Status.REMOVED.value


def _ends(document: GraphDocument) -> list[tuple[End, int]]:
    return [
        (item, position)
        for item, position in document.position.items()
        if isinstance(item, End) and item.owner is None
    ]


def _key(end: End, back: dict[Value, Value]) -> tuple[BoxKind, object]:
    """Return a key that matched ends share: inputs are matched as values, the others by name."""
    return end.kind, back.get(end.value, end.value) if end.kind is BoxKind.INPUT else end.title
