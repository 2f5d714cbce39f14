"""Weights that a model has as integers already: converted to floats, and times a scale for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes.core.edit import Edit
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import is_weight_argument

_CONVERSIONS = (
    "aten.to.dtype",
    "aten._to_copy.default",
    "aten.to.dtype_layout",
    "prims.convert_element_type.default",
)
_MULTIPLICATION = "aten.mul.Tensor"
# What a conversion may say besides the dtype.
_NEUTRAL = ("self", "a", "dtype", "non_blocking", "copy")


@dataclass(frozen=True, slots=True)
class IntegerWeight:
    """Integers [out, in] of int8, and scales [out, 1]; None where there are none."""

    integers: Value
    scales: Value | None

    def operands(self, edit: Edit) -> tuple[Value, Value]:
        """Return integers and scales as ``npu::quantized_linear`` takes them, made in the prologue."""
        rows = self.integers.tensor_type.static_shape[0]
        if self.scales is None:
            ones = edit.call("aten.new_ones.default", self.integers, [rows, 1], dtype=torch.float32)
            return self.integers, edit.to_prologue(ones)
        if self.scales.tensor_type.dtype is torch.float32:
            return self.integers, self.scales
        return self.integers, edit.to_prologue(edit.call("aten.to.dtype", self.scales, torch.float32))


def integer_weight_of(graph: Graph, weight: Value) -> IntegerWeight | None:
    """Return the integers that a weight is computed from in a call; None if it is something else."""
    node = weight.producer
    if node is None or node.in_prologue or graph.owner is not None:
        return None
    if node.op_type != _MULTIPLICATION:
        integers = _converted(graph, node)
        return None if integers is None else IntegerWeight(integers, None)
    factors = [node.inputs[0], node.inputs[-1]] if len(node.inputs) == 2 else []
    for first, second in (factors, factors[::-1]) if factors else ():
        integers = None if first.producer is None else _converted(graph, first.producer)
        if integers is not None and _is_known(graph, second) and _are_scales(second, integers):
            return IntegerWeight(integers, second)
    return None


def _converted(graph: Graph, node: OpNode) -> Value | None:
    """Return the int8 weight that a node converts to floats; None if it does something else."""
    if node.op_type not in _CONVERSIONS or len(node.inputs) != 1:
        return None
    arguments: dict[str, Any] = dict(arguments_of(node))
    source, result = node.inputs[0], node.outputs[0].type
    if any(
        item is not None for name, item in arguments.items() if name not in (*_NEUTRAL, "device", "layout")
    ):
        return None
    if not (isinstance(source.type, TensorType) and isinstance(result, TensorType)):
        return None
    is_plain = source.type.dtype is torch.int8 and source.type.rank == 2 and source.type.strides is None
    is_float = result.dtype.is_floating_point and not source.type.symbols
    return source if is_plain and is_float and _is_known(graph, source) else None


def _is_known(graph: Graph, value: Value) -> bool:
    if value.producer is not None:
        return value.producer.in_prologue
    return is_weight_argument(graph, value)


def _are_scales(value: Value, integers: Value) -> bool:
    type = value.type
    rows = integers.tensor_type.shape[0]
    return (
        isinstance(type, TensorType)
        and type.dtype.is_floating_point
        and type.shape == (rows, 1)
        and type.strides is None
    )
