"""PyTorch's oneDNN ops: availability, preconditions, packed weights, and activations that they fuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.types import memory_format_strides
from npu_ir.ops.schema import find_op
from npu_passes.core.edit import Edit
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import weight_problem
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
    return edit.to_prologue(edit.call(op_type, weight, *arguments, type=type, name="packed"))


def dense_bias(edit: Edit, bias: Value | None) -> Value | None:
    """Return a bias whose numbers are adjacent: oneDNN's ops of PyTorch do not read its stride."""
    if bias is None or bias.tensor_type.strides is None:
        return bias
    dense = edit.call("aten.clone.default", bias, memory_format=torch.contiguous_format)
    return edit.to_prologue(dense) if weight_problem(edit.graph, bias) is None else dense


def channels_last_type(type: TensorType) -> TensorType:
    """Return a 4-d type with channels-last strides."""
    return TensorType(type.shape, type.dtype, memory_format_strides(type.shape, torch.channels_last))


def type_problem(*values: Value | None) -> str | None:
    """Return the reason why a value is not a non-empty float32 tensor of static shape; None if all are."""
    for value in values:
        if value is None:
            continue
        if not isinstance(value.type, TensorType) or str(value.type.dtype) != "torch.float32":
            return f"%{value.name} is {value.type}: oneDNN's float32 kernels are what was measured"
        if value.type.symbols:
            return f"%{value.name} is {value.type}: what is fastest depends on sizes"
        if value.type.numel == 0:
            return f"%{value.name} is empty"
    return None


# By op: the name in oneDNN, and the arguments that are its scalars.
_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "aten.gelu.default": ("gelu", ()),
    "aten.hardswish.default": ("hardswish", ()),
    "aten.hardtanh.default": ("hardtanh", ("min_val", "max_val")),
    "aten.leaky_relu.default": ("leaky_relu", ("negative_slope",)),
    "aten.relu.default": ("relu", ()),
    "aten.sigmoid.default": ("sigmoid", ()),
    "aten.silu.default": ("swish", ()),
    "aten.tanh.default": ("tanh", ()),
}
_RELU6 = "aten.relu6.default"
_RELU = "aten.relu.default"


@dataclass(frozen=True, slots=True)
class Activation:
    """Activation as the arguments ``attr``, ``scalars`` and ``algorithm`` of PyTorch's oneDNN ops."""

    name: str = "none"
    scalars: tuple[float, ...] = ()
    algorithm: str = ""

    @property
    def arguments(self) -> list[Any]:
        return [self.name, list(self.scalars), self.algorithm]


NOTHING = Activation()
RELU = Activation("relu")


def activation_of(node: OpNode | None) -> Activation | None:
    """Return the activation that ``node`` computes; None if oneDNN has no such activation."""
    if node is None:
        return None
    if node.op_type == _RELU6:
        return Activation("hardtanh", (0.0, 6.0))
    if node.op_type not in _NAMES:
        return None
    name, numbers = _NAMES[node.op_type]
    arguments = arguments_of(node, defaults=True)
    if any(isinstance(arguments[number], Value) for number in numbers):
        return None
    return Activation(
        name, tuple(float(arguments[number]) for number in numbers), arguments.get("approximate", "")
    )


def is_relu(node: OpNode | None) -> bool:
    return node is not None and node.op_type == _RELU


def only_reader(value: Value) -> OpNode | None:
    """Return the only reader of ``value``; None if it is used several times, or returned by the graph."""
    return value.users[0] if value.use_count == 1 and value.users else None


def other_summand(node: OpNode | None, value: Value) -> Value | None:
    """Return the tensor that ``node`` adds to ``value``; None if it is not a plain sum of two equal types."""
    if node is None or node.op_type != "aten.add.Tensor":
        return None
    arguments = arguments_of(node, defaults=True)
    parts = [item for item in (arguments["self"], arguments["other"]) if isinstance(item, Value)]
    if len(parts) != 2 or arguments["alpha"] != 1:
        return None
    other = parts[0] if parts[1] is value else parts[1]
    return other if isinstance(other.type, TensorType) and other.type == value.type else None
