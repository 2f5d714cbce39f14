"""Diagram of the difference of two graphs, which shows both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir.core.node import OpNode, Value
from npu_ir.diff import GraphDiff, NodeDiff, Status
from npu_ir.diff.entries import status_of
from npu_ir.errors import VisualizationError
from npu_ir.viz.captions import (
    count_caption,
    make_printable,
    names_caption,
    op_caption,
    values_caption,
)
from npu_ir.viz.diagram import Box, BoxKind, Diagram, Edge, EdgeKind

_KINDS = {status: BoxKind(status.value) for status in Status}
# In front of titles: readers must not depend on colours (WCAG 2.1, criterion 1.4.1).
_MARKS = {Status.UNCHANGED: "", Status.REMOVED: "\N{MINUS SIGN} ", Status.ADDED: "+ ", Status.CHANGED: "~ "}
_MAX_OUTPUTS = 8


def build_diff_diagram(diff: GraphDiff, max_nodes: int) -> Diagram:
    """Return the diagram of a difference.

    Unchanged nodes next to a change have boxes of their own if ``max_nodes`` allows; runs of other unchanged
    nodes share a box.

    Raises:
        VisualizationError: ``max_nodes`` is too small.
    """
    if max_nodes < 2:
        raise VisualizationError(f"max_nodes={max_nodes}: a drawing has room for 2 boxes at least")
    return _DiffDiagramBuilder(diff, max_nodes).build()


@dataclass(frozen=True, slots=True)
class _OutputDiff:
    """A result or an update: its title, and its value before and after."""

    title: str
    kind: BoxKind
    a: Value | None
    b: Value | None
    status: Status


class _DiffDiagramBuilder:
    """Builder of one diagram."""

    def __init__(self, diff: GraphDiff, max_nodes: int) -> None:
        self._diff = diff
        self._max_nodes = max_nodes
        self._boxes: list[Box] = []
        self._box_of: dict[OpNode | Value, str] = {}  # nodes and arguments of both graphs
        self._edges: defaultdict[tuple[str, str], dict[str, dict[Value, None]]] = defaultdict(dict)

    def build(self) -> Diagram:
        diff = self._diff
        self._add_arguments()
        self._add_nodes()
        for item in diff.nodes:
            for side, node in (("a", item.a), ("b", item.b)):
                for value in () if node is None else node.inputs:
                    self._connect(value, self._box_of[node], side)  # type: ignore[index]
        self._add_outputs()
        counts = ", ".join(f"{diff.count(status):,} {status.value}" for status in Status)
        title = " \N{RIGHTWARDS ARROW} ".join(dict.fromkeys((diff.a.name, diff.b.name)))
        boxes, edges = tuple(self._boxes), tuple(self._drawn_edges())
        return Diagram(make_printable(title), f"nodes: {counts}", boxes, edges)

    def _add(self, kind: BoxKind, title: str, details: Sequence[str] = (), tooltip: str = "") -> str:
        id = f"n{len(self._boxes)}"
        lines = tuple(make_printable(line) for line in details if line)
        self._boxes.append(Box(id, kind, make_printable(title), lines, make_printable(tooltip, 400)))
        return id

    def _add_arguments(self) -> None:
        """Add a box for each input and each changed argument; unchanged weights have none."""
        changed = {(line.kind, line.name): line for line in self._diff.lines}
        back = {other: value for value, other in self._diff.values.items()}
        gone = [value for value in self._diff.a.arguments if value not in self._diff.values]
        groups: defaultdict[tuple[BoxKind, str], list[Value]] = defaultdict(list)
        for value in (*gone, *self._diff.b.arguments):
            assert value.kind is not None
            line = changed.get((value.kind.value, value.name))
            if line is not None:
                groups[_KINDS[line.status], value.kind.value].append(value)
            elif value in self._diff.b.inputs:
                groups[BoxKind.INPUT, "input"].append(value)
        for (kind, what), values in groups.items():
            alone = len(values) <= _MAX_OUTPUTS
            for together in [[value] for value in values] if alone else [values]:
                title = names_caption(together) if alone else count_caption(len(values), what)
                detail = values_caption(together) if alone else names_caption(together)
                mark = _MARKS[Status(kind.value)] if kind is not BoxKind.INPUT else ""
                id = self._add(
                    kind, f"{mark}{what if kind is not BoxKind.INPUT else ''} {title}".strip(), [detail]
                )
                self._box_of.update((value, id) for value in together)
                self._box_of.update((back[value], id) for value in together if value in back)

    def _add_nodes(self) -> None:
        nodes = self._diff.nodes
        shown = self._find_shown(near=1)
        if _num_boxes(shown) > self._max_nodes:
            shown = self._find_shown(near=0)
        start = 0
        room = self._max_nodes if _num_boxes(shown) <= self._max_nodes else self._max_nodes - 1
        while start < len(nodes):
            stop = start + 1
            while not shown[start] and stop < len(nodes) and not shown[stop]:
                stop += 1
            if room == 0:
                stop = len(nodes)
                id = self._add(BoxKind.MORE, f"... {count_caption(stop - start, 'more node')}")
            elif stop - start == 1:
                id = self._add(*_node_box(nodes[start]))
            else:
                id = self._add(BoxKind.UNCHANGED, f"{count_caption(stop - start, 'node')}")
            for item in nodes[start:stop]:
                self._box_of.update((node, id) for node in (item.a, item.b) if node is not None)
            start, room = stop, room - 1

    def _find_shown(self, near: int) -> list[bool]:
        """Return a flag per node: it has its own box, as it or (if ``near``) a producer or reader changed."""
        items = self._diff.nodes
        is_shown = [item.status is not Status.UNCHANGED for item in items]
        if not near:
            return is_shown
        both = [(at, node) for at, item in enumerate(items) for node in (item.a, item.b) if node is not None]
        position = {node: at for at, node in both}
        is_near = list(is_shown)
        for at, value in ((at, value) for at, node in both for value in node.inputs):
            source = None if value.producer is None else position.get(value.producer)
            if source is not None and (is_shown[at] or is_shown[source]):
                is_near[at] = is_near[source] = True
        return is_near

    def _add_outputs(self) -> None:
        ends = [*_result_diffs(self._diff), *_update_diffs(self._diff)]
        unchanged = [end for end in ends if end.status is Status.UNCHANGED]
        together = len(unchanged) > _MAX_OUTPUTS
        common = self._add(BoxKind.OUTPUT, f"{len(unchanged)} results and updates") if together else ""
        for end in ends:
            id = common
            if end.status is not Status.UNCHANGED or not together:
                kind = end.kind if end.status is Status.UNCHANGED else _KINDS[end.status]
                value = end.b or end.a
                id = self._add(
                    kind, _MARKS[end.status] + end.title, [values_caption([value])] if value else []
                )
            for side, value in (("a", end.a), ("b", end.b)):
                if value is not None:
                    self._connect(value, id, side)

    def _connect(self, value: Value, target: str, side: str) -> None:
        source = self._box_of.get(value if value.producer is None else value.producer)
        if source is not None and source != target:
            self._edges[source, target].setdefault(side, {})[value] = None

    def _drawn_edges(self) -> Iterator[Edge]:
        for (source, target), sides in self._edges.items():
            values = list(sides.get("b", sides.get("a", {})))
            label = "" if all(value.producer is None for value in values) else values_caption(values)
            kind = EdgeKind.PLAIN if len(sides) == 2 else EdgeKind.ADDED if "b" in sides else EdgeKind.REMOVED
            yield Edge(source, target, label, kind)


def _num_boxes(shown: Sequence[bool]) -> int:
    return sum(here or (at > 0 and shown[at - 1]) or at == 0 for at, here in enumerate(shown))


def _node_box(item: NodeDiff) -> tuple[BoxKind, str, list[str], str]:
    node = item.b or item.a
    assert node is not None
    op = op_caption(node.op_type)
    if item.a is not None and item.a.op_type != node.op_type:
        op = f"{op_caption(item.a.op_type)} \N{RIGHTWARDS ARROW} {op}"
    name = f"%{node.outputs[0].name}" if node.outputs else node.name
    details = [
        name,
        f"was: {', '.join(item.was)}" if item.was else "",
        f"changed: {', '.join(item.changes)}" if item.changes else "",
        f"merged into {item.merged_into}" if item.merged_into else "",
    ]
    return _KINDS[item.status], _MARKS[item.status] + op, details, repr(node)


def _result_diffs(diff: GraphDiff) -> Iterator[_OutputDiff]:
    paths = {line.name for line in diff.lines if line.kind == "return"}
    a, b = (_leaves(graph.results) for graph in (diff.a, diff.b))
    for path in {**a, **b}:
        before, after = a.get(path), b.get(path)
        if before is not None or after is not None:
            changes = ("value",) if path in paths else ()
            yield _OutputDiff(path, BoxKind.OUTPUT, before, after, status_of(before, after, changes))


def _leaves(results: Any) -> Mapping[str, Value | None]:
    structure, leaves = results
    paths = structure.leaf_paths("result")
    return {path: leaf if isinstance(leaf, Value) else None for path, leaf in zip(paths, leaves, strict=True)}


def _update_diffs(diff: GraphDiff) -> Iterator[_OutputDiff]:
    changed = {line.name for line in diff.lines if line.kind == "update"}
    before = dict(diff.a.updates)
    back = {other: value for value, other in diff.values.items()}
    for target, value in diff.b.updates.items():
        old = before.pop(back[target], None) if target in back else None
        names = {target.name, back[target].name if target in back else ""}
        status = status_of(old, value, () if changed.isdisjoint(names) else ("value",))
        yield _OutputDiff(target.target, BoxKind.UPDATE, old, value, status)
    for target, value in before.items():
        yield _OutputDiff(target.target, BoxKind.UPDATE, value, None, Status.REMOVED)
