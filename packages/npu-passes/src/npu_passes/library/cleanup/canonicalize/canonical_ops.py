"""Canonical op for each set of synonymous ops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_ir import Expr, OpNode, TensorType, Value
from npu_passes.library.fusion.axes import PERMUTING, permutation
from npu_passes.rewriting.arguments import arguments_of

_RESHAPE = "aten.reshape.default"
_PERMUTE = "aten.permute.default"
_EXPAND = "aten.expand.default"
_EXPANDING = ("aten.expand_as.default", "aten.broadcast_to.default")
# By op that changes only the shape: the argument with the new shape, if it has one.
_RESHAPING: Mapping[str, str | None] = {
    _RESHAPE: "shape",
    "aten.view.default": "size",
    "aten._unsafe_view.default": "size",
    "aten.flatten.using_ints": None,
    "aten.unflatten.int": None,
    "aten.view_as.default": None,
    "aten.reshape_as.default": None,
}
# Only these ops accept a number in place of a tensor (``should_allow_numbers_as_tensors``, torch 2.13); their
# results are bitwise equal.
_OF_TENSORS: Mapping[str, str] = {
    "aten.add.Scalar": "aten.add.Tensor",
    "aten.sub.Scalar": "aten.sub.Tensor",
    "aten.mul.Scalar": "aten.mul.Tensor",
    "aten.div.Scalar": "aten.div.Tensor",
    "aten.div.Scalar_mode": "aten.div.Tensor_mode",
    "aten.floor_divide.Scalar": "aten.floor_divide.default",
    "aten.true_divide.Scalar": "aten.div.Tensor",
    "aten.true_divide.Tensor": "aten.div.Tensor",
}


@dataclass(frozen=True, slots=True)
class Call:
    """Call of an op, as the arguments of `npu_passes.Edit.call`."""

    rule: str
    op_type: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def canonical_call(node: OpNode) -> Call | None:
    """Return the call to replace ``node`` by; None if its op is canonical."""
    op_type = node.op_type
    if op_type in _OF_TENSORS:
        args = arguments_of(node)
        first, second = args.pop("self"), args.pop("other")
        return Call("overload", _OF_TENSORS[op_type], (first, second), args)
    if not (node.inputs and _is_strided(node.inputs[0])):
        return None
    if op_type in _RESHAPING:
        return _reshape(node)
    if op_type in _EXPANDING:
        return _expand(node)
    if op_type in PERMUTING and op_type != _PERMUTE and not op_type.split(".")[1].endswith("_copy"):
        axes = permutation(node)
        return None if axes is None else Call("permute", _PERMUTE, (node.inputs[0], list(axes)))
    return None


def _is_strided(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def _reshape(node: OpNode) -> Call | None:
    shape = _literal_shape(node.outputs[0])
    if shape is None:
        argument = _RESHAPING[node.op_type]
        if argument is None or node.op_type == _RESHAPE:
            return None
        shape = arguments_of(node)[argument]
    if node.op_type == _RESHAPE and len(node.inputs) == 1 and node.attrs["shape"] == shape:
        return None
    return Call("reshape", _RESHAPE, (node.inputs[0], shape))


def _expand(node: OpNode) -> Call | None:
    old_shape, new_shape = node.inputs[0].tensor_type.shape, node.outputs[0].tensor_type.shape
    old_shape = (1,) * (len(new_shape) - len(old_shape)) + old_shape
    # -1 keeps the size of an axis.
    plain = [size if isinstance(size, int) else -1 for size in new_shape]
    if any(size == -1 and old != new for size, old, new in zip(plain, old_shape, new_shape, strict=True)):
        return None
    return Call("expand", _EXPAND, (node.inputs[0], plain))


def _literal_shape(made: Value) -> list[int] | None:
    """Return a shape as literals, with -1 for a dynamic size; None if that is ambiguous."""
    assert isinstance(made.type, TensorType)
    shape = [-1 if isinstance(size, Expr) else size for size in made.type.shape]
    return None if shape.count(-1) > 1 or (-1 in shape and math.prod(shape) == 0) else shape
