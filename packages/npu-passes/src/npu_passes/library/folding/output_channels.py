"""Folding of per-channel affine functions into convolutions and linear layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.symbolic.expressions import Dim
from npu_passes.core.edit import Edit
from npu_passes.library.folding.weight_memory import copy_problem
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import Weights

LINEAR = "aten.linear.default"
_TRANSPOSED = ("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
_EITHER = "aten.convolution.default"
CONVOLUTIONS = (
    *(f"aten.conv{rank}d.{overload}" for rank in (1, 2, 3) for overload in ("default", "padding")),
    *_TRANSPOSED,
    _EITHER,
)
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

# A float64 value with one element or one per channel, or a number. By type promotion, results of such a
# value are float64, whatever the dtype of the other operand.
Term: TypeAlias = "Value | float"


@dataclass(frozen=True, slots=True)
class ChannelOp:
    """Convolution or linear layer."""

    node: OpNode
    arguments: dict[str, Any]  # the arguments of the call, by name
    weight: Value  # [out, in / groups, *kernel]; transposed [in, out / groups, *kernel]
    bias: Value | None  # None stands for zeros
    channels: Dim
    axis: int
    # Of a transposed convolution; 1 for all others, whose weights have the channels as first axis.
    groups: int
    is_transposed: bool  # whether the channels are the second axis of the weight

    @property
    def output(self) -> Value:
        return self.node.outputs[0]

    @property
    def type(self) -> TensorType:
        return self.output.tensor_type


@dataclass(frozen=True, slots=True)
class Affine:
    """Function ``scale * y + shift`` of each output channel of ``y``; None is 1 and 0."""

    scale: Term | None = None
    shift: Term | None = None  # of any dtype where ``scale`` is a value


def channel_op(value: Value) -> ChannelOp | None:
    """Return the convolution or linear layer of the body that computes ``value``; None if none does."""
    node = value.producer
    if node is None or node.in_prologue or node.op_type not in (*CONVOLUTIONS, LINEAR):
        return None
    arguments = arguments_of(node, defaults=True)
    weight, bias = arguments["weight"], arguments.get("bias")
    shape = weight.tensor_type.shape
    if len(shape) < 2:
        return None  # a linear layer with a weight of rank 1 has no axis of output channels
    is_transposed = node.op_type in _TRANSPOSED or (node.op_type == _EITHER and arguments["transposed"])
    groups = arguments["groups"] if is_transposed else 1
    inner = 0 if node.op_type == LINEAR else len(shape) - 2
    return ChannelOp(
        node=node,
        arguments=arguments_of(node),
        weight=weight,
        bias=bias,
        channels=shape[1] * groups if is_transposed else shape[0],
        axis=value.tensor_type.rank - 1 - inner,
        groups=groups,
        is_transposed=is_transposed,
    )


def fold_problems(graph: Graph, op: ChannelOp, reader: Value, weights: Weights) -> Iterator[str]:
    """Yield the reasons why ``op`` cannot absorb the node that reads it: other uses, types, weights."""
    if op.output.use_count != 1:
        yield "the output of the convolution is used elsewhere"
    if op.type.dtype not in _DTYPES:
        yield f"the convolution computes {op.type}, which is not real floating point"
    if not op.type.same_shape_and_dtype(reader.type):
        yield f"it makes {reader.type} of {op.type}: shape or dtype would change"
    elif op.type.strides != reader.tensor_type.strides:
        yield f"it makes {reader.type} of {op.type}: the result would have other strides"
    if op.bias is not None and op.bias.tensor_type.shape != (op.channels,):
        yield f"the bias is {op.bias.type}, not one number for each of {op.channels} channels"
    for value in filter(None, (op.weight, op.bias)):
        if value not in weights:
            yield f"{unknown_reason(graph, value)}, and the convolution reads it as a weight"
            continue
        problem = copy_problem(value)
        if problem is not None:
            yield problem


def unknown_reason(graph: Graph, value: Value) -> str:
    """Return the reason, in words, why ``value`` is not known when weights are bound."""
    if value in graph.updates:
        return f"%{value.name} is updated by the graph"
    if value.producer is None:
        return f"%{value.name} is an input of the {'call' if graph.owner is None else 'region'}"
    return f"%{value.name} is computed in each call"


def fold(edit: Edit, op: ChannelOp, affine: Affine, weights: Weights) -> Value:
    """Return the output of a new convolution that computes ``affine`` of the output of ``op``.

    The new weights are computed from the old ones in float64, and have their dtype. They are added to
    ``weights``.
    """
    weight = op.weight if affine.scale is None else _scaled_weight(edit, op, affine.scale)
    return with_parameters(edit, op, weight, _folded_bias(edit, op, affine), weights)


def with_parameters(edit: Edit, op: ChannelOp, weight: Value, bias: Value | None, weights: Weights) -> Value:
    """Return the output of a new convolution with another weight and bias, which ``weights`` gain."""
    for value in filter(None, (weight, bias)):
        weights.add(value)
    arguments = {**op.arguments, "weight": weight, "bias": bias}
    return edit.call(op.node.op_type, **arguments, type=op.type, name=op.node.name)


def folded_names(op: ChannelOp) -> tuple[str, str]:
    """Return the names of the new weight and bias."""
    bias = op.weight.name.replace("weight", "bias") if op.bias is None else op.bias.name
    return _folded_name(op.weight.name), _folded_name(bias)


def to_float64(edit: Edit, value: Value) -> Value:
    return _cast(edit, value, torch.float64)


def _scaled_weight(edit: Edit, op: ChannelOp, scale: Term) -> Value:
    weight, shape = op.weight, op.weight.tensor_type.static_shape
    dtype, name = op.weight.tensor_type.dtype, folded_names(op)[0]
    if not isinstance(scale, Value):
        weight = to_float64(edit, weight)
    if not isinstance(scale, Value) or scale.tensor_type.numel == 1:
        return _cast(edit, edit.call("aten.mul.Tensor", weight, scale), dtype, name)
    ones = [1] * (len(shape) - 2)
    # A grouped transposed weight is [in, out / groups, ...]: rows of group g belong to the channels of
    # group g.
    if op.groups > 1:
        parts = [op.groups, shape[0] // op.groups, *shape[1:]]
        weight = edit.call("aten.reshape.default", weight, parts)
        scale = edit.call("aten.reshape.default", scale, [op.groups, 1, shape[1], *ones])
    else:
        scale = edit.call(
            "aten.reshape.default", scale, [1, -1, *ones] if op.is_transposed else [-1, 1, *ones]
        )
    scaled = edit.call("aten.mul.Tensor", weight, scale)
    if op.groups > 1:
        scaled = edit.call("aten.reshape.default", scaled, list(shape))
    return _cast(edit, scaled, dtype, name)


def _folded_bias(edit: Edit, op: ChannelOp, affine: Affine) -> Value | None:
    """Return ``scale * bias + shift`` as the bias of ``op``; None if there is still none."""
    bias: Term | None = op.bias
    # A value as the first operand promotes the bias to float64; a number does not.
    first = affine.shift if affine.scale is None else affine.scale
    if op.bias is not None and not isinstance(first, Value):
        bias = to_float64(edit, op.bias)
    if affine.scale is not None and bias is not None:
        bias = edit.call("aten.mul.Tensor", bias, affine.scale)
    if affine.shift is not None:
        bias = affine.shift if bias is None else edit.call("aten.add.Tensor", bias, affine.shift)
    if bias is None:
        return None
    if not isinstance(bias, Value):
        bias = edit.call("aten.new_full.default", op.weight, [op.channels], bias, dtype=torch.float64)
    elif bias.tensor_type.numel != op.channels:
        bias = edit.call("aten.repeat.default", bias, [op.channels])
    return _cast(edit, bias, (op.bias or op.weight).tensor_type.dtype, folded_names(op)[1])


def _folded_name(name: str) -> str:
    return f"folded.{name.removeprefix('folded.')}"


def _cast(edit: Edit, value: Value, dtype: torch.dtype, name: str | None = None) -> Value:
    if value.tensor_type.dtype == dtype:
        return value
    return edit.call("aten.to.dtype", value, dtype, name=name)
