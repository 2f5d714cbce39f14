"""PyTorch's oneDNN ops: availability, and the types of their results."""

from __future__ import annotations

from typing import Any

import torch

from npu_ir import TensorType, Value
from npu_ir.core.types import memory_format_strides
from npu_ir.ops.schema import find_op
from npu_passes.core.edit import Edit
from npu_runtime._torch.tensors import packed_layout

PACK_CONVOLUTION = "mkldnn._reorder_convolution_weight.default"
CONVOLUTION = "mkldnn._convolution_pointwise.default"
CONVOLUTION_ADD = "mkldnn._convolution_pointwise.binary"
PACK_LINEAR = "mkldnn._reorder_linear_weight.default"
LINEAR = "mkldnn._linear_pointwise.default"
_OPS = (PACK_CONVOLUTION, CONVOLUTION, CONVOLUTION_ADD, PACK_LINEAR, LINEAR)


def unavailable_reason() -> str | None:
    """Return the reason why PyTorch's oneDNN ops are unavailable; None if they are available."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "PyTorch is built without oneDNN"
    missing = next((name for name in _OPS if find_op(name) is None), None)
    return None if missing is None else f"PyTorch has no operator {missing}"


def pack(edit: Edit, op_type: str, weight: Value, *arguments: Any) -> Value:
    """Return a weight packed to oneDNN's layout, computed when weights are bound."""
    type = TensorType(weight.tensor_type.shape, weight.tensor_type.dtype, layout=packed_layout())
    value = edit.call(op_type, weight, *arguments, type=type, name="packed")
    assert value.producer is not None
    edit.graph.move_to_prologue(value.producer)
    return value


def channels_last_type(type: TensorType) -> TensorType:
    """Return a 4-d type with channels-last strides."""
    return TensorType(type.shape, type.dtype, memory_format_strides(type.shape, torch.channels_last))
