"""Partition graphs: the graphs that backends lower and prepare, with facts about their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from npu_ir.core.node import OpNode, Value
from npu_ir.graph.graph import Graph


class PartitionGraph(Graph):
    """Consecutive nodes of a graph as a graph of their own: what they read from outside is an input.

    A copy knows nothing about its inputs.

    Attributes:
        constant_inputs: The inputs that have the same content in each run until other weights are bound:
            weights that the graph does not update, constants, and results of the prologue. Weights are not
            among them in planned programs and steps, which read them where others may change them.
        overwritable_inputs: The inputs that nothing reads after the partition, and whose elements do not
            overlap. An op may overwrite their memory if it says so (`npu_ir.backend.BackendOp.overwrites`).
        in_place: The outputs of nodes that write into the memory of their first input, which is state, and
            that input (`npu_ir.backend.Backend.overwrites_rows`). The graph does not return them.
        originals: The node of the whole graph that each node is a copy of.
    """

    constant_inputs: frozenset[Value] = frozenset()
    overwritable_inputs: frozenset[Value] = frozenset()
    in_place: Mapping[Value, Value] = MappingProxyType({})
    originals: Mapping[OpNode, OpNode] = MappingProxyType({})


def in_place_of(graph: Graph) -> Mapping[Value, Value]:
    """Return the `PartitionGraph.in_place` of a graph; an empty one for other graphs."""
    return graph.in_place if isinstance(graph, PartitionGraph) else {}
