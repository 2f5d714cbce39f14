"""A graph in float64 as a side of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir import Graph, Value, VerificationError
from npu_ir.core.node import external_names
from npu_ir.interpreter.run_nodes import Observer
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing
from npu_runtime.diagnostics.compare.sides import GraphSide, Outcome, Weights, device_of


@dataclass(frozen=True)
class Float64:
    """A request to run a graph in float64, with weights, inputs and constants promoted; see `float64`.

    Attributes:
        graph: The graph.
    """

    graph: Graph


def float64(graph: Graph) -> Float64:
    """Return a side that runs ``graph`` in float64, whatever floating-point dtypes it declares."""
    return Float64(graph)


class Float64Side(GraphSide):
    """A graph run in float64, as a side."""

    is_exact = True
    shows_strides = False

    def __init__(self, graph: Graph, weights: Weights) -> None:
        super().__init__(graph, weights)
        self.label = f"float64 run of {graph.name!r}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        bound = self.bind_arguments(args, kwargs)
        run = Float64Run(self.graph, bound, (), device_of(bound))
        run.run_remaining(observe)
        results = [run.take(leaf) if isinstance(leaf, Value) else leaf for leaf in self.graph.results[1]]
        updates = {
            name: run.take(value)
            for target, value in self.graph.updates.items()
            for name in external_names(target)
        }
        lost = next((item for item in (*results, *updates.values()) if isinstance(item, Missing)), None)
        if lost is not None:
            raise VerificationError(
                f"{self.label} has no result: {lost.reason}",
                fix="compare with another side; in other comparisons float64 only judges what it can compute",
            )
        return Outcome(results, updates)
