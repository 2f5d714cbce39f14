"""The difference of two graphs, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from npu_ir.core.node import Value
from npu_ir.diff.entries import LineDiff, NodeDiff, Status, status_of
from npu_ir.diff.report import diff_data, diff_text

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


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
        sides = (self.a, self.b)
        a, b = (Counter(node.op_type for part in side.graphs() for node in part.nodes) for side in sides)
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
        return diff_data(self)

    def __str__(self) -> str:
        return diff_text(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(status)} {status.value}" for status in Status)
        return f"<GraphDiff {self.a.name!r} to {self.b.name!r}: nodes {counts}>"

    def _repr_html_(self) -> str:
        """Return a page in a frame, which notebooks show (`npu_ir.to_html`)."""
        # By name: drawings are above differences, and are imported only by who draws.
        page: str = import_module("npu_ir.viz").notebook_html(self)
        return page


def _count(item: NodeDiff, status: Status) -> int:
    count = int(item.status is status)
    regions: list[Mapping[str, Graph]] = [{} if node is None else node.regions for node in (item.a, item.b)]
    for name in {**regions[0], **regions[1]}:
        if name in item.regions:
            count += item.regions[name].count(status)
            continue
        before, after = (region.get(name) for region in regions)
        region = before if after is None else after
        if region is not None and status_of(before, after, ()) is status:
            count += sum(map(len, region.graphs()))
    return count
