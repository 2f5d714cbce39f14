"""The difference of two graphs, as data."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npu_ir.core.node import OpNode, Value

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


class Status(str, enum.Enum):
    """What became of a node or a line."""

    UNCHANGED = "unchanged"
    REMOVED = "removed"
    ADDED = "added"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """What became of one node.

    Attributes:
        a: The node before; None of one that was added.
        b: The node after; None of one that was removed.
        changes: What differs: ``op``, ``type``, ``order``, ``prologue``, and names of arguments.
        was: Names of the nodes that were merged into it, where they are not this one alone.
        merged_into: Name of the node that a removed one was merged into; "" if it is just gone.
        regions: For each region of both that differs what changed in it.
    """

    a: OpNode | None
    b: OpNode | None
    changes: tuple[str, ...] = ()
    was: tuple[str, ...] = ()
    merged_into: str = ""
    regions: Mapping[str, GraphDiff] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        return _status(self.a, self.b, self.changes)

    @property
    def name(self) -> str:
        """The name after, if it is there, or else before."""
        node = self.b or self.a
        assert node is not None
        return node.name


@dataclass(frozen=True, slots=True)
class LineDiff:
    """What became of an argument, a result, an update, a symbol, a constraint, or the call: lines of the text form.

    Attributes:
        kind: ``symbol``, ``require``, ``input``, ``param``, ``buffer``, ``state``, ``const``, ``call``, ``update`` or
            ``return``.
        name: What it is called after, if it is there, or else before.
        a: Its line before; None of one that was added.
        b: Its line after; None of one that was removed.
        changes: What differs.
    """

    kind: str
    name: str
    a: str | None
    b: str | None
    changes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        return _status(self.a, self.b, self.changes)


def _status(a: object, b: object, changes: tuple[str, ...]) -> Status:
    if a is None or b is None:
        return Status.ADDED if a is None else Status.REMOVED
    return Status.CHANGED if changes else Status.UNCHANGED


@dataclass(frozen=True, slots=True, eq=False)
class GraphDiff:
    """What changed between two graphs.

    Names do not count, and neither does where nodes come from: the graphs are the same where they differ in
    nothing else.

    Attributes:
        a: The graph before.
        b: The graph after.
        nodes: Every node of both, in an order that follows ``b``.
        lines: What changed beside the nodes, in the order of the text form.
        values: The value of ``b`` for each value of ``a`` that has one.
        renames: Names before and after: of values, of nodes without values, of the graph.
    """

    a: Graph
    b: Graph
    nodes: tuple[NodeDiff, ...]
    lines: tuple[LineDiff, ...]
    values: Mapping[Value, Value]
    renames: tuple[tuple[str, str], ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing changed but names."""
        return not self.lines and all(node.status is Status.UNCHANGED for node in self.nodes)

    def count(self, status: Status) -> int:
        """Return how many nodes became of this status, those inside of regions included."""
        return sum(_count(node, status) for node in self.nodes)

    @property
    def num_merged(self) -> int:
        """How many of the nodes that were removed were merged into others."""
        return sum(bool(node.merged_into) for diff in self.diffs() for node in diff.nodes)

    @property
    def ops(self) -> dict[str, tuple[int, int]]:
        """For each op whose number of nodes changed: how many there were, and are; the largest change first."""
        a, b = _op_counts(self.a), _op_counts(self.b)
        changed = [op for op in {**a, **b} if a[op] != b[op]]
        return {op: (a[op], b[op]) for op in sorted(changed, key=lambda op: (-abs(b[op] - a[op]), op))}

    def diffs(self) -> Iterator[GraphDiff]:
        """Yield this one, and those of regions that are in both graphs."""
        yield self
        for node in self.nodes:
            for region in node.regions.values():
                yield from region.diffs()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON data; nodes that did not change are only counted."""
        from npu_ir.diff.report import diff_data

        return diff_data(self)

    def __str__(self) -> str:
        from npu_ir.diff.report import diff_text

        return diff_text(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(status)} {status.value}" for status in Status)
        return f"<GraphDiff {self.a.name!r} to {self.b.name!r}: nodes {counts}>"


def _count(item: NodeDiff, status: Status) -> int:
    count = int(item.status is status)
    regions: list[Mapping[str, Graph]] = [{} if node is None else node.regions for node in (item.a, item.b)]
    for name in {**regions[0], **regions[1]}:
        if name in item.regions:
            count += item.regions[name].count(status)
            continue
        before, after = (region.get(name) for region in regions)
        region = before if after is None else after
        if region is not None and _status(before, after, ()) is status:
            count += sum(map(len, region.graphs()))
    return count


def _op_counts(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for part in graph.graphs() for node in part.nodes)
