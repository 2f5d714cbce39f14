"""Rules of nodes that only copy: casts, clones, dropout that drops nothing, tensors filled by another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from npu_cuda.backend.op_builder import Lowered, Rule
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import lower_view
from npu_ir import OpNode
from npu_ir.plugins.backend import BackendOp

# Of a copy: what its result has by its type, or has no meaning for memory of the CPU.
_OF_THE_RESULT = ("dtype", "memory_format", "non_blocking", "copy")
_STRIDED, _DEVICES = (None, torch.strided), ("cpu", "meta")  # the device of the graph is `meta` in attributes


def lower_copy(node: OpNode) -> Lowered:
    """Return the op of a copy, whose dtype and strides are those of its result, whatever attributes say."""
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return "Copy takes one tensor"
    device = node.attrs.get("device")
    if isinstance(device, torch.device) and device.type not in _DEVICES:
        return f"Copy does not move tensors to {device}"
    further = [
        name
        for name, value in node.attrs.items()
        if name not in (*_OF_THE_RESULT, "device") and value is not None and value is not False
        if not (name == "layout" and value in _STRIDED)
    ]
    if further:
        return f"Copy does not change {', '.join(further)}"
    return [BackendOp("Copy", node.inputs, node.outputs, (node,))]


def _lower_copy_of_source(node: OpNode) -> Lowered:
    """Return the op of ``copy(self, src)``, which has the strides of ``self`` and the elements of ``src``."""
    target, source = map(tensor_type, node.inputs)
    if target.static_shape != source.static_shape:
        return f"Copy takes a tensor of the shape of its result, not {source}"
    return [BackendOp("Copy", node.inputs[1:], node.outputs, (node,))]


def _lower_fill(node: OpNode) -> Lowered:
    """Return the op of ``fill(self, value)``: the only element of ``value`` in the shape of ``self``."""
    return [BackendOp("Copy", node.inputs[1:], node.outputs, (node,))]


def _lower_dropout(node: OpNode) -> Lowered:
    probability: Any = node.attrs.get("p")
    if node.attrs.get("train") is not False and probability != 0:
        return f"there is no native op that drops elements, here of a probability of {probability}"
    return [BackendOp("Copy", node.inputs, node.outputs, (node,))]


CASTS = ("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device")
COPY_RULES: Mapping[str, tuple[Rule, ...]] = {
    "aten.clone.default": (lower_copy,),
    "aten.copy.default": (_lower_copy_of_source,),
    "aten.contiguous.default": (lower_view, lower_copy),
    **dict.fromkeys(CASTS, (lower_copy,)),
    "aten.fill.Tensor": (_lower_fill,),
    "aten.dropout.default": (_lower_dropout,),
}
