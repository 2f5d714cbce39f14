"""Statistics of graphs and of runs of passes: nodes, weights, constants, floating-point operations."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.literals import Literal
from npu_ir.core.storage import span_bytes
from npu_ir.core.types import Type
from npu_ir.graph.requirement import require_graph
from npu_ir.ops.calls import bind_arguments
from npu_ir.ops.effects import aten_name, is_view
from npu_ir.ops.schema import find_op, schema_of
from npu_passes._torch import OpOverload
from npu_passes.core.journal import Journal

# Of one core of an x86 CPU of the last ten years, data in the cache, within a factor of three: the seconds of
# a call from Python, the bytes and the floating-point operations (float32) per second.
_CALL, _BYTES, _FLOPS = 1e-6, 2e10, 1e11
# Seconds of calls that take much longer, by how the op type begins: PyTorch chooses among kernels, lays out
# operands for them, or asks oneDNN. Of tensors of 32 numbers, on which a copy takes 1 us. A convolution in
# groups has no kernel for so few.
_CALLS = {
    "aten.scaled_dot_product_attention.": 15e-6, "aten.conv": 9e-6, "aten.gelu.": 9e-6,
    "aten.rms_norm.": 9e-6, "aten.upsample_": 8e-6, "aten.group_norm.": 7e-6, "aten.batch_norm.": 6e-6,
    "aten.layer_norm.": 4e-6, "aten.native_layer_norm.": 4e-6,
    "aten.linear.": 4e-6, "aten.addmm.": 4e-6, "aten.bmm.": 4e-6, "aten.matmul.": 4e-6,
}  # fmt: skip
_GROUPED_CALL = 40e-6
# Products with weights packed for oneDNN: PyTorch has no formulas for them.
_PACKED_PRODUCTS = ("mkldnn._linear_pointwise.", "mkldnn._convolution_pointwise.")
# It is composite; PyTorch's formula is one of those that it decomposes into.
_ATTENTION = "aten.scaled_dot_product_attention.default"
# Composite ops without products. Others are run without data to find out, for which PyTorch may import its
# compiler, which takes seconds.
WITHOUT_PRODUCTS = frozenset(
    f"aten.{name}"
    for name in (
        *("layer_norm.default", "rms_norm.default", "group_norm.default", "instance_norm.default"),
        *("batch_norm.default", "softmax.int", "log_softmax.int"),
        *("dropout.default", "feature_dropout.default"),
        *("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default"),
        *("max_pool1d.default", "max_pool2d.default", "max_pool3d.default", "avg_pool1d.default"),
        *("pad.default", "upsample_nearest2d.vec", "upsample_bilinear2d.vec"),
    )
)


@dataclass(frozen=True, slots=True)
class _Call:
    """The facts that the operations of a node depend on; they stay when the node is edited."""

    op_type: str
    inputs: tuple[Type, ...]
    outputs: tuple[Type, ...]
    operands: tuple[str, ...] | None
    attrs: dict[str, Literal]

    @classmethod
    def of(cls, node: OpNode) -> _Call | None:
        """Return the call of a node; None if it surely counts as 0."""
        if not node.inputs or not _may_count(node.op_type):
            return None  # an op without inputs would allocate its result, of any size
        inputs, outputs = (tuple([value.type for value in part]) for part in (node.inputs, node.outputs))
        return cls(node.op_type, inputs, outputs, node.operands, dict(node.attrs))

    def arguments(self, op: Any, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        binding = bind_arguments(schema_of(op), len(inputs), self.operands, self.attrs)
        return binding.arguments(inputs, torch.device("meta"))


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
        call = _Call.of(node)
        return 0 if call is None else self.count(call)

    def count(self, call: _Call) -> int | None:
        key = call.op_type, call.inputs, call.operands, repr(call.attrs)
        if key not in self._known:
            self._known[key] = _count_flops(call)
        return self._known[key]


def estimate_seconds(node: OpNode, count: FlopCounter) -> float | None:
    """Return the time of a node on one core of a CPU; None if sizes are symbolic, or it has regions."""
    values = (*node.inputs, *node.outputs)
    if node.regions or any(value.type.symbols for value in values):
        return None
    if is_view(node) and not _copies(node):
        return _CALL
    traffic = sum(span_bytes(value.type) for value in dict.fromkeys(values))
    return _call_seconds(node) + max(traffic / _BYTES, (count(node) or 0) / _FLOPS)


def _copies(node: OpNode) -> bool:
    """Return whether an op that returns its input where it can has to copy it."""
    if aten_name(node) not in ("to", "contiguous", "reshape", "flatten"):
        return False
    source, result = node.inputs[0].type, node.outputs[0].type
    assert isinstance(source, TensorType)
    assert isinstance(result, TensorType)
    return source.dtype != result.dtype or (source.strides is not None and result.strides is None)


def _call_seconds(node: OpNode) -> float:
    """Return what a call takes beside the data of the node."""
    if node.op_type.startswith("aten.conv") and node.attrs.get("groups", 1) != 1:
        return _GROUPED_CALL
    return next((seconds for start, seconds in _CALLS.items() if node.op_type.startswith(start)), _CALL)


@functools.cache
def _may_count(op_type: str) -> bool:
    """Return whether an op has a formula or may decompose into ops that do; pointwise ops never do."""
    if op_type.startswith(_PACKED_PRODUCTS):
        return True
    op = None if op_type in WITHOUT_PRODUCTS else find_op(op_type)
    if not isinstance(op, OpOverload) or not (
        op.overloadpacket in flop_registry or schema_of(op).is_composite
    ):
        return False
    is_view = any(item.alias_info is not None for item in op._schema.returns)
    return torch.Tag.pointwise not in op.tags and not is_view


def _count_flops(call: _Call) -> int | None:
    op = find_op(call.op_type)
    if op is None or any(type.symbols for type in (*call.inputs, *call.outputs)):
        return None
    if call.op_type.startswith(_PACKED_PRODUCTS):
        return _count_packed_product(call, op)
    meta, results = _meta_tensors(call.inputs), _meta_tensors(call.outputs)
    if meta is None:
        return None
    args, kwargs = call.arguments(op, meta)
    formula = flop_registry.get(op.overloadpacket) if isinstance(op, OpOverload) else None
    if call.op_type == _ATTENTION and _is_of_four_axes(call.inputs[:3]):
        formula = flop_registry[torch.ops.aten._scaled_dot_product_flash_attention]
    try:
        if formula is not None and results is not None:
            return int(formula(*args, **kwargs, out_val=results[0] if len(results) == 1 else results))
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            op(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    return int(counter.get_total_flops())


def _is_of_four_axes(types: Sequence[Type]) -> bool:
    """Return whether query, key and value have as many batches and heads, as the formula assumes."""
    shapes = [type.static_shape for type in types if isinstance(type, TensorType)]
    return len({shape[:2] for shape in shapes if len(shape) == 4}) == 1 and all(
        len(shape) == 4 for shape in shapes
    )


def _meta_tensors(types: Sequence[Type]) -> list[torch.Tensor] | None:
    """Return a tensor without data of each type; None if one of them is not strided."""
    tensors = [type for type in types if isinstance(type, TensorType) and type.layout is torch.strided]
    if len(tensors) < len(types):
        return None
    return [
        torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device="meta")
        for type in tensors
    ]


def _count_packed_product(call: _Call, op: Any) -> int:
    """Return the operations of a product with packed weights: two per output element and weight it reads."""
    # The type of a weight packed for oneDNN states its unpacked shape.
    args, kwargs = call.arguments(op, call.inputs)
    arguments = dict(zip((item.name for item in op._schema.arguments), args, strict=False)) | kwargs
    weights_of_each = math.prod(arguments["W"].static_shape[1:])
    (output,) = call.outputs
    assert isinstance(output, TensorType)
    return int(2 * output.numel * weights_of_each)


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """The size of a graph.

    Attributes:
        nodes: Nodes that run in each call, those in regions included.
        prologue_nodes: Nodes that run once, when weights are bound.
        parameters: Elements of the weights that a call reads: parameters, buffers and prologue results.
        constant_bytes: Bytes of the constants.
    """

    nodes: int
    prologue_nodes: int
    parameters: int
    constant_bytes: int
    # Counted when asked for: PyTorch's formulas take longer than most passes.
    _calls: tuple[_Call, ...] = field(repr=False, hash=False)
    _counter: FlopCounter = field(repr=False, compare=False)

    @property
    def flops(self) -> int:
        """Floating-point operations of a call, a multiply-add counting as two.

        Those of matrix products, convolutions and attention; in regions, they are counted once.
        """
        return sum(self._counter.count(call) or 0 for call in self._calls)

    @property
    def unknown_flops(self) -> int:
        """Nodes whose operations are unknown, and not in ``flops``.

        Their sizes are symbolic, or PyTorch cannot run them without data.
        """
        return sum(self._counter.count(call) is None for call in self._calls)


def graph_statistics(graph: Graph, counter: FlopCounter | None = None) -> GraphStatistics:
    """Return the size of a graph as it is now; linear in the number of its nodes."""
    require_graph(graph)
    parts = list(graph.graphs())
    body = [node for part in parts for node in part.body]
    constants = [value.data for part in parts for value in part.constants.values()]
    return GraphStatistics(
        nodes=len(body),
        prologue_nodes=len(graph.prologue),
        parameters=sum(_elements(value) for value in find_weights_read(graph)),
        constant_bytes=sum(data.nbytes for data in constants if data is not None),
        _calls=tuple(call for call in map(_Call.of, body) if call is not None),
        _counter=counter or FlopCounter(),
    )


def find_weights_read(graph: Graph) -> list[Value]:
    """Return the weights and prologue results that the body or the results read."""
    read = {value: None for node in graph.body for value in node.inputs}
    read |= dict.fromkeys(graph.returned_values)
    candidates = [*graph.weights, *(value for node in graph.prologue for value in node.outputs)]
    return [value for value in candidates if value in read]


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

    def __repr__(self) -> str:
        made = f"{len(self.journal.rewrites)} rewrites in {len(self.passes)} runs of passes"
        return f"<PassResult {self.graph.name!r}: {self.before.nodes} -> {self.after.nodes} nodes, {made}>"

    @property
    def seconds(self) -> float:
        return sum(item.seconds for item in self.passes)
