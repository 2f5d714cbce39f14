"""Partition graphs: the graphs that backends lower and prepare, with facts about their inputs."""

from __future__ import annotations

from npu_ir.core.node import Value
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
    """

    constant_inputs: frozenset[Value] = frozenset()
    overwritable_inputs: frozenset[Value] = frozenset()
