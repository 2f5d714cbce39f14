"""What is known of who runs a graph: every node, and totals by backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npu_ir.errors import BackendError

QUANTITIES = ("flops", "count", "time")


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Who runs one node.

    Attributes:
        name: Of the node.
        op_type: Its op.
        module: Where in the model it is from; "" if that is not known.
        backend: Who runs it.
        kernel: What is called, in words.
        part: Nodes of the same number are run by one call of a backend; ATen calls an op for each.
        reasons: Why each of the other backends does not run it, by name.
        flops: Floating-point operations; None where they are not known.
        seconds: Of the call, if it was timed: at the last node of those that it runs, and 0.0 at the others.
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


@dataclass(frozen=True, slots=True)
class Total:
    """What one backend runs.

    Attributes:
        count: Nodes.
        parts: Calls of the backend, each for nodes in a row; of ATen, rows of nodes.
        flops: Floating-point operations, as far as they are known.
        seconds: None if nothing was timed.
    """

    count: int = 0
    parts: int = 0
    flops: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Who runs each node of the body of a graph, and why not another backend.

    Attributes:
        graph: Its name.
        backends: Those that were asked, in order of preference; ATen, which takes everything, is the last.
        nodes: In order. Those of the prologue are not among them: they are run once, by ATen.
        prologue_nodes: How many those are.
    """

    graph: str
    backends: tuple[str, ...]
    nodes: tuple[NodeExplanation, ...] = field(repr=False)
    prologue_nodes: int = 0

    @property
    def is_timed(self) -> bool:
        return bool(self.nodes) and all(node.seconds is not None for node in self.nodes)

    @property
    def unknown_flops(self) -> int:
        """The number of nodes whose floating-point operations are not known; they count as 0."""
        return sum(node.flops is None for node in self.nodes)

    @property
    def totals(self) -> dict[str, Total]:
        """What each backend runs, by name."""
        return {name: self._total(name) for name in self.backends}

    def share(self, backend: str, by: str = "flops") -> float:
        """Return which part of the graph a backend runs, from 0.0 to 1.0.

        Args:
            backend: Its name.
            by: What is counted: "flops", "count" of nodes, or "time".

        Raises:
            BackendError: There is no such backend or quantity, or nothing that could be shared.
        """
        if backend not in self.backends:
            raise BackendError(
                f"the backend {backend!r} was not asked", fix=f"those asked are {', '.join(self.backends)}"
            )
        amounts = {name: _amount(total, by) for name, total in self.totals.items()}
        whole = sum(amounts.values())
        if not whole:
            raise BackendError(
                f"no node of graph {self.graph!r} has {'FLOPs' if by == 'flops' else by}: there is nothing to share",
                fix="count nodes: by='count', or --by count on the command line",
            )
        return amounts[backend] / whole

    def refusals(self) -> dict[tuple[str, str], list[NodeExplanation]]:
        """Return the nodes that each backend refuses, by name and reason, the most frequent first."""
        found: dict[tuple[str, str], list[NodeExplanation]] = {}
        for node in self.nodes:
            for backend in self.backends[: self.backends.index(node.backend)]:
                found.setdefault((backend, node.reasons[backend]), []).append(node)
        return dict(sorted(found.items(), key=lambda item: (self.backends.index(item[0][0]), -len(item[1]))))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""
        return {
            "graph": self.graph,
            "backends": list(self.backends),
            "prologue_nodes": self.prologue_nodes,
            "unknown_flops": self.unknown_flops,
            "totals": {name: dataclasses.asdict(total) for name, total in self.totals.items()},
            "nodes": [{**dataclasses.asdict(node), "reasons": dict(node.reasons)} for node in self.nodes],
        }

    def __str__(self) -> str:
        from npu_runtime.diagnostics.explain.table import explanation_parts

        return "\n".join(map(str, explanation_parts(self)))

    def _total(self, backend: str) -> Total:
        own = [node for node in self.nodes if node.backend == backend]
        return Total(
            count=len(own),
            parts=len({node.part for node in own}),
            flops=sum(node.flops or 0 for node in own),
            seconds=sum(node.seconds or 0.0 for node in own) if self.is_timed else None,
        )


def _amount(total: Total, by: str) -> float:
    if by not in QUANTITIES:
        raise BackendError(f"a share is by {', '.join(QUANTITIES)}, not {by!r}")
    if by == "time" and total.seconds is None:
        raise BackendError(
            "nothing was timed", fix="give the arguments of a call, or --time on the command line"
        )
    return {"flops": total.flops, "count": total.count, "time": total.seconds or 0.0}[by]
