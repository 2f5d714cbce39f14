"""Documents of pages: a graph as the plain data that the scripts of a page read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import format_literal
from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.viz.boxes import weights_of
from npu_ir.viz.captions import (
    count_caption,
    is_weight,
    make_printable,
    op_caption,
    ops_caption,
    parameters_caption,
    type_caption,
)
from npu_ir.viz.diagram import BoxKind
from npu_ir.viz.page.tree import End, Group, Item, build_tree

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph
_MAX_ATTRIBUTE = 300
_ALWAYS = ("title", "name", "op", "items")  # keys of every record, where they apply


class GraphDocument:
    """A graph as the data of a page.

    Attributes:
        graph: The graph.
        position: The position of each node, input, result and update in ``boxes``.
        boxes: A record for each: what its box and its details show. Absent keys stand for nothing to show.
        tree: The groups, as nested lists of positions and groups.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        items = build_tree(graph)
        self.position: dict[OpNode | End, int] = {
            item: position for position, item in enumerate(_leaves(items))
        }
        self._source: dict[Value, int | str] = dict(_sources(self.position))
        self.boxes = [
            _without_empty(self._node(item) if isinstance(item, OpNode) else self._end(item))
            for item in self.position
        ]
        self.tree = self._items(items)

    def to_dict(self) -> dict[str, Any]:
        graph = self.graph
        summary = [count_caption(len(graph), "node"), parameters_caption(graph.parameters.values())]
        return {
            "name": make_printable(graph.name, 120),
            "summary": ", ".join(filter(None, summary)),
            "boxes": self.boxes,
            "tree": self.tree,
        }

    def _node(self, node: OpNode) -> dict[str, Any]:
        operands = node.operands or ("",) * len(node.inputs)
        return {
            "kind": (BoxKind.WEIGHTED if weights_of([node]) else BoxKind.OP).value,
            "title": op_caption(node.op_type),
            "line": type_caption(node.outputs[0].type) if node.outputs else "",
            "name": node.name,
            "op": node.op_type,
            "module": node.provenance.module,
            "source": node.provenance.source,
            "phase": node.provenance.phase,
            "once": node.in_prologue,
            "from": list(node.provenance.fused_from),
            "inputs": [self._input(name, value) for name, value in zip(operands, node.inputs, strict=True)],
            "outputs": [[value.name, str(value.type)] for value in node.outputs],
            "attrs": [
                [name, _shorten(format_literal(literal))] for name, literal in sorted(node.attrs.items())
            ],
            "bytes": sum(_size_bytes(value) for value in node.outputs),
        }

    def _end(self, end: End) -> dict[str, Any]:
        record: dict[str, Any] = {
            "kind": end.kind.value,
            "title": make_printable(end.title),
            "line": type_caption(end.value.type),
            "name": end.title,
        }
        if end.kind is not BoxKind.INPUT:
            return {**record, "inputs": [self._input("", end.value)]}
        # The inputs of a region are passed by the node that owns it.
        passed = [] if end.owner is None else [["", "", "", self.position[end.owner]]]
        return {**record, "inputs": passed, "outputs": [[end.value.name, str(end.value.type)]]}

    def _input(self, operand: str, value: Value) -> list[Any]:
        """Return the argument, the name and type of the value, and the box it is from or its kind."""
        kind = InputKind.INPUT if value.kind is None else value.kind
        source = self._source.get(value, kind.value)
        return [operand, value.target if is_weight(value) else value.name, str(value.type), source]

    def _items(self, items: Sequence[Item]) -> list[Any]:
        return [self._group(item) if isinstance(item, Group) else self.position[item] for item in items]

    def _group(self, group: Group) -> dict[str, Any]:
        nodes = list(group.nodes())
        lines = [count_caption(len(nodes), "node"), ops_caption(nodes)] if nodes else []
        return _without_empty(
            {
                "kind": group.kind,
                "title": make_printable(group.title),
                "path": group.path,
                "lines": [*lines, *filter(None, [parameters_caption(weights_of(nodes))])],
                "items": self._items(group.items),
            }
        )


def _leaves(items: Sequence[Item]) -> Iterator[OpNode | End]:
    for item in items:
        if isinstance(item, Group):
            yield from _leaves(item.items)
        else:
            yield item


def _sources(position: dict[OpNode | End, int]) -> Iterator[tuple[Value, int]]:
    for item, at in position.items():
        if isinstance(item, OpNode):
            yield from ((value, at) for value in item.outputs)
        elif item.kind is BoxKind.INPUT:
            yield item.value, at


def _size_bytes(value: Value) -> int:
    size = getattr(value.type, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_ATTRIBUTE else f"{text[:_MAX_ATTRIBUTE]}…"


def _without_empty(record: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in record.items() if item or key in _ALWAYS}
