"""Layouts of images: the ops that preserve them, and the choice of the nodes that work in channels-last."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.ops.effects import is_pure, is_view
from npu_ir.ops.schema import find_op
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import Weights
from npu_runtime._torch.ops import OpOverload
from npu_runtime.cpu.costs import copy_seconds, is_channels_last
from npu_runtime.cpu.minimum_cut import Network

# At least as fast in channels-last.
_BY_NAME = frozenset(
    f"aten.{name}"
    for name in (
        "max_pool2d.default",
        "avg_pool2d.default",
        "adaptive_avg_pool2d.default",
        "_adaptive_avg_pool2d.default",
        "batch_norm.default",
        "constant_pad_nd.default",
        "pad.default",
        "conv_transpose2d.input",
        "upsample_nearest2d.vec",
        "upsample_nearest2d.default",
        "upsample_bilinear2d.vec",
        "upsample_bilinear2d.default",
        "_native_batch_norm_legit_no_training.default",
        # Elementwise, but without torch.Tag.pointwise (torch 2.13).
        "hardswish.default",
        "prelu.default",
    )
)
_CAT = "aten.cat.default"
# They read images in any layout, and their results are not images.
_READERS = frozenset({"aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default"})


def is_layout_agnostic(node: OpNode) -> bool:
    """Return whether ``node`` reads images in any layout, and returns images in that layout, or no images."""
    if node.regions or not node.outputs or not is_pure(node) or is_view(node):
        return False
    if node.op_type in _READERS:
        return is_image(node.inputs[0])
    if not is_image(node.outputs[0]) or any(value.use_count for value in node.outputs[1:]):
        return False
    if node.op_type == _CAT:
        return arguments_of(node, defaults=True)["dim"] in (1, -3) and all(map(is_image, node.inputs))
    if node.op_type in _BY_NAME:
        return is_image(node.inputs[0])
    return is_elementwise(node.op_type) and all(is_image(value) for value in node.inputs if _rank(value) == 4)


def is_image(value: Value) -> bool:
    """Return whether a value is a dense 4-d tensor of static shape, contiguous or in channels-last.

    Its dtype is float32, or int64 as of the indices of pools.
    """
    type = value.type
    return (
        isinstance(type, TensorType)
        and type.rank == 4
        and type.dtype in (torch.float32, torch.int64)
        and not type.symbols
        and type.memory_format is not None
    )


def is_layout_sensitive(value: Value) -> bool:
    """Return whether a value is an image for which contiguous and channels-last strides differ."""
    if not is_image(value):
        return False
    _, channels, height, width = value.tensor_type.static_shape
    return channels > 1 and height * width > 1


def _rank(value: Value) -> int:
    return value.type.rank if isinstance(value.type, TensorType) else 0


def is_elementwise(op_type: str) -> bool:
    op = find_op(op_type)
    return isinstance(op, OpOverload) and op.namespace == "aten" and torch.Tag.pointwise in op.tags


_LAST, _CONTIGUOUS = "channels-last", "contiguous"
_PICOSECONDS = 1e12  # costs are integers, so that sums are exact


def choose_channels_last(
    saved: Mapping[OpNode, float], weights: Weights | Container[Value], fixed: Container[Value] = ()
) -> set[OpNode]:
    """Return the nodes whose change to channels-last saves most, net of the copies at the borders.

    This is a minimum cut (project selection): the saving of a node is lost if it is on the side of
    contiguous memory, and one copy is paid for each image whose producer and readers are not all on one
    side.

    Args:
        saved: The nodes that can change, with the seconds that each saves; negative if it is slower.
        weights: Values that are copied when weights are bound, at no cost in calls.
        fixed: Values that stay as they are, whatever their producers and readers work in.
    """
    if not any(seconds > 0 for seconds in saved.values()):
        return set()
    network = Network()
    for node, seconds in saved.items():
        cost = round(abs(seconds) * _PICOSECONDS)
        if seconds > 0:
            network.add_edge(_LAST, node, cost)
        elif seconds < 0:
            network.add_edge(node, _CONTIGUOUS, cost)
    images = dict.fromkeys(value for node in saved for value in (*node.inputs, *node.outputs))
    for value in images:
        if is_layout_sensitive(value) and value not in weights and value not in fixed:
            _add_image(network, value, saved)
    side = network.side_of_source(_LAST, _CONTIGUOUS)
    return {node for node in saved if node in side}


def _add_image(network: Network, value: Value, movable: Collection[OpNode]) -> None:
    """Add the cost of a copy of ``value``, paid if its producer and readers are on both sides."""
    # One copy serves all readers, so pairwise edges would count it several times. Hence two auxiliary nodes.
    # Edges without a capacity have no limit: by them, `some` is on the side of the source if any neighbour
    # is, and `all` on that of the sink if any neighbour is.
    some_last, all_last = ("some", value), ("all", value)
    network.add_edge(some_last, all_last, round(copy_seconds(value.tensor_type) * _PICOSECONDS))
    for side in _sides(value, movable):
        if side is not _CONTIGUOUS:
            network.add_edge(side, some_last)
        if side is not _LAST:
            network.add_edge(all_last, side)


def _sides(value: Value, movable: Collection[OpNode]) -> Iterator[OpNode | str]:
    """Yield the producer and readers of ``value``; for nodes that cannot change, their side."""
    for node in (value.producer, *(user for user, _ in value.uses)):
        if node is not None and node in movable:
            yield node
        else:
            yield _LAST if is_channels_last(value) else _CONTIGUOUS
