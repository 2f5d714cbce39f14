"""Ops of kernels that take contiguous tensors: inputs of other strides are copied first, results last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npu_cuda.backend.op_builder import make_op
from npu_cuda.backend.pointwise_rules import refused_number
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Operand, Temporary


def expanded(node: OpNode, ops: list[BackendOp], operand: Operand, shape: Sequence[int]) -> Operand:
    """Return the operand, contiguous and of a shape to which it broadcasts; a copy is added to ``ops``."""
    type = tensor_type(operand)
    if type.strides is None and type.static_shape == tuple(shape):
        return operand
    copy = Temporary(f"{operand.name}.copy", TensorType(tuple(shape), type.dtype))
    ops.append(BackendOp("Copy", (operand,), (copy,), (node,)))
    return copy


def make_contiguous_op(
    node: OpNode,
    kind: str,
    inputs: Sequence[Operand],
    before: Sequence[BackendOp] = (),
    **fields: float,
) -> list[BackendOp]:
    """Return an op on contiguous tensors, with the copies that it needs.

    ``before`` are the ops that make some of its inputs.
    """
    ops = list(before)
    sources = [expanded(node, ops, item, tensor_type(item).static_shape) for item in inputs]
    results: list[Operand] = []
    copies: list[BackendOp] = []
    for output in node.outputs:
        type = tensor_type(output)
        if type.strides is None:
            results.append(output)
            continue
        results.append(Temporary(f"{output.name}.contiguous", TensorType(type.shape, type.dtype)))
        copies.append(BackendOp("Copy", (results[-1],), (output,), (node,)))
    return [*ops, make_op(node, kind, sources, results, **fields), *copies]


def fill_single(node: OpNode, name: str, value: Any) -> tuple[Temporary, BackendOp] | str:
    """Return a tensor of one element of the dtype of the result, and the op that fills it."""
    if (reason := refused_number(node, "Fill", name, value)) is not None:
        return reason
    single = Temporary(f"{node.name}.{name}", TensorType((), node.outputs[0].tensor_type.dtype))
    return single, make_op(node, "Fill", (), (single,), value=float(value))


def shapes_of(node: OpNode) -> list[tuple[int, ...]]:
    """Return the shapes of the inputs of a node."""
    return [tensor_type(value).static_shape for value in node.inputs]


def positive(axis: int, rank: int) -> int:
    """Return an axis that may be counted from the end, counted from the start."""
    return axis + rank if axis < 0 else axis


def integer_of(node: OpNode, name: str, default: int = 0) -> int:
    """Return an integer among the arguments of a node."""
    value: Any = node.attrs.get(name, default)
    return int(value)


def axis_of(node: OpNode, default: int = 0) -> int:
    """Return the argument ``dim`` of a node."""
    return integer_of(node, "dim", default)
