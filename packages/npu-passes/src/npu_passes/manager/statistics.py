"""Statistics of graphs and of runs of passes: nodes, weights, constants, floating-point operations."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.ops.execution import binding_of
from npu_ir.ops.schema import find_op, schema_of
from npu_passes._torch import OpOverload
from npu_passes.core.journal import Journal

# Products with weights packed for oneDNN: PyTorch has no formulas for them.
_PACKED_PRODUCTS = ("mkldnn._linear_pointwise.", "mkldnn._convolution_pointwise.")


class FlopCounter:
    """Counter of the floating-point operations of nodes, with a cache of its results."""

    def __init__(self) -> None:
        self._known: dict[Any, int | None] = {}

    def __call__(self, node: OpNode) -> int | None:
        """Return the number of floating-point operations of a node; a multiply-add counts as two.

        Matrix products, convolutions and attention count; everything else is 0, as in
        `torch.utils.flop_counter`, where the formulas come from. Products with packed weights count as those
        with ordinary weights do; operations fused to them are 0.

        Returns:
            The number; None if sizes are symbolic, or PyTorch cannot run the op without data.
        """
        if not node.inputs or not _may_count(node.op_type):
            return 0  # an op without inputs would allocate its result, of any size
        types = tuple(value.type for value in node.inputs)
        key = node.op_type, types, node.operands, repr(node.attrs)
        if key not in self._known:
            self._known[key] = _count_flops(node)
        return self._known[key]


@functools.cache
def _may_count(op_type: str) -> bool:
    """Return whether an op has a formula or may decompose into ops that do; pointwise ops never do."""
    if op_type.startswith(_PACKED_PRODUCTS):
        return True
    op = find_op(op_type)
    if not isinstance(op, OpOverload) or not (
        op.overloadpacket in flop_registry or schema_of(op).is_composite
    ):
        return False
    is_view = any(item.alias_info is not None for item in op._schema.returns)
    return torch.Tag.pointwise not in op.tags and not is_view


def _count_flops(node: OpNode) -> int | None:
    types = [value.type for value in (*node.inputs, *node.outputs)]
    if any(type.symbols for type in types):
        return None
    op = find_op(node.op_type)
    if op is None:
        return None
    if node.op_type.startswith(_PACKED_PRODUCTS):
        return _count_packed_product(node, op)
    meta = [
        torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device="meta")
        if isinstance(type, TensorType) and type.layout is torch.strided
        else None
        for type in (value.type for value in node.inputs)
    ]
    if None in meta:
        return None
    args, kwargs = binding_of(node, op).arguments(meta, torch.device("meta"))
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            op(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    return int(counter.get_total_flops())


def _count_packed_product(node: OpNode, op: Any) -> int:
    """Return the operations of a product with packed weights: two per output element and weight it reads."""
    # The type of a weight packed for oneDNN states its unpacked shape.
    args, kwargs = binding_of(node, op).arguments(list(node.inputs), torch.device("meta"))
    arguments = dict(zip((item.name for item in op._schema.arguments), args, strict=False)) | kwargs
    weights_of_each = math.prod(arguments["W"].tensor_type.static_shape[1:])
    return int(2 * node.outputs[0].tensor_type.numel * weights_of_each)


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
    constants = [value.data for part in parts for value in part.constants.values()]
    return GraphStatistics(
        nodes=len(body),
        prologue_nodes=len(graph.prologue),
        parameters=sum(_elements(value) for value in find_weights_read(graph)),
        constant_bytes=sum(data.nbytes for data in constants if data is not None),
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


@dataclass(frozen=True, slots=True)
class PassStatistics:
    """Statistics of one run of a pass.

    Attributes:
        text: The pass with its options.
        round: The round it ran in, from 1.
        rewrites: The number of rewrites it made.
        seconds: Its duration, without the checks around it.
        before: The size of the graph before it.
        after: The size of the graph after it.
    """

    text: str
    round: int
    rewrites: int
    seconds: float
    before: GraphStatistics
    after: GraphStatistics


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of running passes.

    Attributes:
        graph: The new graph.
        before: The size of the original graph.
        after: The size of the new graph.
        passes: Every run of a pass, in order.
        rounds: The number of rounds.
        converged: Whether the last round changed nothing; if not, the bound on rounds was hit.
        journal: Rewrites, and refusals with their reasons.
    """

    graph: Graph
    before: GraphStatistics
    after: GraphStatistics
    passes: tuple[PassStatistics, ...]
    rounds: int
    converged: bool
    journal: Journal

    @property
    def seconds(self) -> float:
        return sum(item.seconds for item in self.passes)
