"""The explanation of a graph's partitioning: each node with its backend, and totals; as data and tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npu_ir.cli.console import Table
from npu_ir.cli.quantities import count_text, time_text
from npu_ir.errors import BackendError
from npu_passes.cli.reports import flops_text, names_text
from npu_runtime.diagnostics.profile.report import known_flops_text

QUANTITIES = ("flops", "count", "time")


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """The backend of one node, and the reasons of the others.

    Attributes:
        name: The name of the node.
        op_type: Its op.
        module: Path of its module; "" if unknown.
        backend: The name of the backend that runs it.
        kernel: The name or description of the kernel.
        part: The number of its partition, which one call of a backend runs; ATen calls an op for each node.
        reasons: The reason of each other backend for not running it, by name.
        flops: Floating-point operations; None if unknown.
        seconds: The time of the call, if measured: at the last node that it runs, and 0.0 at the others.
        passed_over: Why rules and kernels that users added to the backend, and that were asked first, do not
            compute it.
    """

    name: str
    op_type: str
    module: str
    backend: str
    kernel: str
    part: int
    reasons: Mapping[str, str]
    flops: int | None = None
    seconds: float | None = None
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """The nodes of one backend in total.

    Attributes:
        count: The number of nodes.
        parts: The number of partitions: runs of consecutive nodes.
        flops: Known floating-point operations.
        seconds: The time; None if not measured.
    """

    count: int = 0
    parts: int = 0
    flops: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The backend of each node in the body of a graph, and the reasons of the others.

    Attributes:
        graph: The name of the graph.
        backends: The names of the backends in order of preference; ATen, which supports every node, is the
            last.
        nodes: The nodes in order, without those of the prologue, which ATen runs once.
        prologue_nodes: The number of nodes of the prologue.
        state_in_place: The names of state that an executor overwrites in part, in its own memory.
        state_copied: Why it copies other such state in each call, by name.
    """

    graph: str
    backends: tuple[str, ...]
    nodes: tuple[NodeExplanation, ...]
    prologue_nodes: int = 0
    state_in_place: tuple[str, ...] = ()
    state_copied: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"{total.count} on {name}" for name, total in self.totals.items()]
        return f"<Explanation {self.graph!r}: {len(self.nodes)} nodes, {', '.join(parts)}>"

    @property
    def is_timed(self) -> bool:
        return bool(self.nodes) and all(node.seconds is not None for node in self.nodes)

    @property
    def unknown_flops(self) -> int:
        """The number of nodes whose floating-point operations are unknown; they count as 0."""
        return sum(node.flops is None for node in self.nodes)

    @property
    def totals(self) -> dict[str, Total]:
        """The totals of each backend, by name."""
        return {name: self._total(name) for name in self.backends}

    def share(self, backend: str, by: str = "flops") -> float:
        """Return the share of the graph that a backend runs, from 0.0 to 1.0.

        Args:
            backend: Its name.
            by: The quantity: "flops", "count" of nodes, or "time".

        Raises:
            BackendError: There is no such backend or quantity, or the total is zero.
        """
        if backend not in self.backends:
            raise BackendError(
                f"the backend {backend!r} was not asked", fix=f"those asked are {', '.join(self.backends)}"
            )
        amounts = {name: _quantity(total, by) for name, total in self.totals.items()}
        whole = sum(amounts.values())
        if not whole:
            raise BackendError(
                f"no node of graph {self.graph!r} has {'FLOPs' if by == 'flops' else by}: "
                "there is nothing to share",
                fix="count nodes: by='count', or --by count on the command line",
            )
        return amounts[backend] / whole

    def refusals(self) -> dict[tuple[str, str], list[NodeExplanation]]:
        """Return the nodes that each backend refuses, by its name and reason, the most frequent first."""
        refused: dict[tuple[str, str], list[NodeExplanation]] = {}
        for node in self.nodes:
            for backend in self.backends[: self.backends.index(node.backend)]:
                refused.setdefault((backend, node.reasons[backend]), []).append(node)
        return dict(
            sorted(refused.items(), key=lambda item: (self.backends.index(item[0][0]), -len(item[1])))
        )

    def summary(self) -> list[str]:
        """Return a line about each backend that runs nodes, and about each refusal; none for ATen alone."""
        if len(self.backends) == 1:
            return []
        flops = sum(total.flops for total in self.totals.values())
        lines = []
        for name, total in self.totals.items():
            if total.count:
                share = f", {_percent(total.flops, flops)} of FLOPs" if flops else ""
                lines.append(f"{name}: {total.count:,} of {count_text(len(self.nodes), 'node')}{share}")
        for (name, reason), nodes in self.refusals().items():
            which = names_text([node.name for node in nodes])
            lines.append(f"not {name}: {count_text(len(nodes), 'node')} ({which}): {reason}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, for JSON."""
        return {
            "graph": self.graph,
            "backends": list(self.backends),
            "prologue_nodes": self.prologue_nodes,
            "unknown_flops": self.unknown_flops,
            "state_in_place": list(self.state_in_place),
            "state_copied": dict(self.state_copied),
            "totals": {name: dataclasses.asdict(total) for name, total in self.totals.items()},
            "nodes": [{**dataclasses.asdict(node), "reasons": dict(node.reasons)} for node in self.nodes],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, explanation_parts(self)))

    def _total(self, backend: str) -> Total:
        own = [node for node in self.nodes if node.backend == backend]
        return Total(
            count=len(own),
            parts=len({node.part for node in own}),
            flops=sum(node.flops or 0 for node in own),
            seconds=sum(node.seconds or 0.0 for node in own) if self.is_timed else None,
        )


def _quantity(total: Total, by: str) -> float:
    if by not in QUANTITIES:
        raise BackendError(f"a share is by {', '.join(QUANTITIES)}, not {by!r}")
    if by == "time" and total.seconds is None:
        raise BackendError(
            "nothing was timed", fix="give the arguments of a call, or --time on the command line"
        )
    return {"flops": total.flops, "count": total.count, "time": total.seconds or 0.0}[by]


def explanation_parts(item: Explanation) -> list[str | Table]:
    """Return an explanation as lines and tables, separated by empty lines."""
    parts: list[str | Table] = [_heading(item), _totals_table(item)]
    if item.unknown_flops:
        parts.append(f"FLOPs without {count_text(item.unknown_flops, 'node')} whose operations are not known")
    if item.state_in_place:
        parts.append(f"state written in place: {names_text(item.state_in_place)}")
    if item.state_copied:
        rows = [(f"%{name}", reason) for name, reason in item.state_copied.items()]
        parts.append(Table(("copied in each call", "because"), rows))
    parts += [*_refusal_tables(item), *_passed_over_tables(item), *_node_tables(item)]
    return [line for part in parts for line in (part, "")][:-1]


def _heading(item: Explanation) -> str:
    once = f", and {item.prologue_nodes:,} run once, by ATen" if item.prologue_nodes else ""
    return (
        f"graph {item.graph}: {count_text(len(item.nodes), 'node')}{once}; asked: {', '.join(item.backends)}"
    )


def _totals_table(item: Explanation) -> Table:
    totals = item.totals
    flops = sum(total.flops for total in totals.values())
    seconds = sum(total.seconds or 0.0 for total in totals.values())
    rows = []
    for name, total in totals.items():
        row = [name, f"{total.count:,}", _percent(total.count, len(item.nodes)), f"{total.parts:,}"]
        row += [flops_text(total.flops), _percent(total.flops, flops)]
        if item.is_timed:
            row += [time_text(total.seconds or 0.0), _percent(total.seconds or 0.0, seconds)]
        rows.append(row)
    columns = ["backend", "nodes", "", "parts", "FLOPs", ""]
    return Table([*columns, "time", ""] if item.is_timed else columns, rows)


def _refusal_tables(item: Explanation) -> list[Table]:
    rows = [
        (backend, f"{len(nodes):,}", reason, names_text([node.name for node in nodes]))
        for (backend, reason), nodes in item.refusals().items()
    ]
    return [Table(("refused by", "nodes", "because", "which"), rows)] if rows else []


def _passed_over_tables(item: Explanation) -> list[Table]:
    rows = [(node.name, node.kernel, reason) for node in item.nodes for reason in node.passed_over]
    return [Table(("passed over for", "run by", "because"), rows)] if rows else []


def _node_tables(item: Explanation) -> list[Table]:
    if not item.nodes:
        return []
    rows = [_node_row(node, timed=item.is_timed) for node in item.nodes]
    columns = ["node", "op", "backend", "kernel", "FLOPs"]
    return [Table([*columns, "time"] if item.is_timed else columns, rows)]


def _node_row(node: NodeExplanation, *, timed: bool) -> list[str]:
    row = [node.name, node.op_type, node.backend, node.kernel, known_flops_text(node.flops)]
    return [*row, time_text(node.seconds) if node.seconds else ""] if timed else row


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""
