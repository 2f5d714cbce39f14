"""Statistics of a graph: counts of its nodes, weights, constants and floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import Graph, TensorType, Value
from npu_passes.manager.flops import FlopCounter


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """The size of a graph.

    Attributes:
        nodes: Nodes that run in each call, those in regions included.
        prologue_nodes: Nodes that run once, when weights are bound.
        parameters: Elements of the weights that a call reads: parameters, buffers and prologue results.
        constant_bytes: Bytes of the constants.
        flops: Floating-point operations of a call, a multiply-add counting as two: matrix products,
            convolutions and attention. Those of regions are counted once.
        unknown_flops: Nodes whose operations are unknown, and not in ``flops``: their sizes are symbolic, or
            PyTorch cannot run them without data.
    """

    nodes: int
    prologue_nodes: int
    parameters: int
    constant_bytes: int
    flops: int
    unknown_flops: int = 0


def graph_statistics(graph: Graph, count: FlopCounter | None = None) -> GraphStatistics:
    """Return the size of a graph; linear in the number of its nodes."""
    count = count or FlopCounter()
    parts = list(graph.graphs())
    body = [node for part in parts for node in part.body]
    flops = [count(node) for node in body]
    return GraphStatistics(
        nodes=len(body),
        prologue_nodes=len(graph.prologue),
        parameters=sum(_elements(value) for value in find_weights_read(graph)),
        constant_bytes=sum(_bytes(value) for part in parts for value in part.constants.values()),
        flops=sum(number for number in flops if number is not None),
        unknown_flops=flops.count(None),
    )


def find_weights_read(graph: Graph) -> list[Value]:
    """Return the weights and prologue results that the body or the results read."""
    candidates = [*graph.weights, *(value for node in graph.prologue for value in node.outputs)]
    return [
        value for value in candidates if any(node is None or not node.in_prologue for node, _ in value.uses)
    ]


def _elements(value: Value) -> int:
    numel = value.type.numel if isinstance(value.type, TensorType) else 1
    return numel if isinstance(numel, int) else 0


def _bytes(value: Value) -> int:
    data = value.argument.data if value.argument is not None else None
    return 0 if data is None else data.nbytes
