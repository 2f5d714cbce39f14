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
    """Outcome for a node or a line."""

    UNCHANGED = "unchanged"
    REMOVED = "removed"
    ADDED = "added"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """The difference of one node.

    Attributes:
        a: The node before; None if it was added.
        b: The node after; None if it was removed.
        changes: Differences: ``op``, ``type``, ``order``, ``prologue``, and names of arguments.
        was: Names of the nodes that were merged into it, unless that is this one alone.
        merged_into: Name of the node that a removed one was merged into; "" if there is none.
        regions: The differences of the regions that both nodes have, of those that differ.
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
        """The name after, or before if the node was removed."""
        node = self.b or self.a
        assert node is not None
        return node.name


@dataclass(frozen=True, slots=True)
class LineDiff:
    """The difference of a line of the text form that is not a node.

    Attributes:
        kind: ``symbol``, ``require``, ``input``, ``param``, ``buffer``, ``state``, ``const``, ``call``,
            ``update`` or ``return``.
        name: The name after, or before if it was removed.
        a: Its line before; None if it was added.
        b: Its line after; None if it was removed.
        changes: Names of the differences.
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
    """The difference of two graphs.

    Names and provenance do not matter: graphs that differ in nothing else are the same.

    Attributes:
        a: The graph before.
        b: The graph after.
        nodes: Every node of both, in an order that follows ``b``.
        lines: Changes other than nodes, in the order of the text form.
        values: The value of ``b`` for each matched value of ``a``.
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
        """True if nothing changed but names and provenance."""
        return not self.lines and all(node.status is Status.UNCHANGED for node in self.nodes)

    def count(self, status: Status) -> int:
        """Return the number of nodes with this status, including those inside regions."""
        return sum(_count(node, status) for node in self.nodes)

    @property
    def num_merged(self) -> int:
        """Number of removed nodes that were merged into others."""
        return sum(bool(node.merged_into) for diff in self.diffs() for node in diff.nodes)

    @property
    def ops(self) -> dict[str, tuple[int, int]]:
        """Node counts before and after, for each op whose count changed; the largest change first."""
        a, b = _op_counts(self.a), _op_counts(self.b)
        changed = [op for op in {**a, **b} if a[op] != b[op]]
        return {op: (a[op], b[op]) for op in sorted(changed, key=lambda op: (-abs(b[op] - a[op]), op))}

    def diffs(self) -> Iterator[GraphDiff]:
        """Yield this difference, and those of the regions that both graphs have."""
        yield self
        for node in self.nodes:
            for region in node.regions.values():
                yield from region.diffs()

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON data; unchanged nodes are only counted."""
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
