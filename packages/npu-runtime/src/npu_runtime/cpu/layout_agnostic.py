"""Layout-agnostic ops on images: as fast in channels-last as in contiguous memory, and layout-preserving."""

from __future__ import annotations

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.ops.effects import is_pure, is_view
from npu_ir.ops.schema import find_op
from npu_passes.rewriting.arguments import arguments_of
from npu_runtime._torch.ops import OpOverload

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
    return _is_elementwise(node.op_type) and all(
        is_image(value) for value in node.inputs if _rank(value) == 4
    )


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


def _is_elementwise(op_type: str) -> bool:
    op = find_op(op_type)
    return isinstance(op, OpOverload) and op.namespace == "aten" and torch.Tag.pointwise in op.tags
