"""Builds the native ops of one node.

Tensors of a native op that its node has no value for are temporaries: statistics that nobody reads, or,
without elements, gradients that the node does not ask for.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_cuda import _C
from npu_cuda.attributes import attrs
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

AXES = "dhw"  # of images, at most
# The ops that compute a node, without kernels, or the reason why there are none.
Lowered = list[BackendOp] | str
# A rule looks at the node alone: dtypes, shapes and strides are checked by the kernels.
Rule = Callable[[OpNode], Lowered]


# Neither the ops nor their schemas change: what plugins register are ops of other names.
@functools.cache
def op_info(kind: str) -> dict[str, Any]:
    """Return what `npu_cuda.ops` tells of a native op."""
    return next(info for info in _C.ops() if info["name"] == kind)


def make_op(
    node: OpNode, kind: str, inputs: Sequence[Operand], outputs: Sequence[Operand], /, **fields: float
) -> BackendOp:
    """Return an op of a kind, with the fields of its attributes; the others have their defaults."""
    schema = op_info(kind)["schema"]
    schema_id, packed = attrs(schema, **fields) if schema else (0, b"")
    return BackendOp(kind, tuple(inputs), tuple(outputs), (node,), schema_id=schema_id, attrs=packed)


def number(node: OpNode, name: str, default: float | None = None) -> Any:
    """Return an attribute that is a number; the default where it is not given, or None."""
    value = node.attrs.get(name)
    return default if value is None else value


def eps_in_two_parts(eps: float) -> dict[str, float]:
    """Return eps as the two numbers of float32 whose sum it is."""
    try:
        (first,) = struct.unpack("<f", struct.pack("<f", eps))
    except OverflowError:
        first = math.copysign(math.inf, eps)
    return {"eps": first, "eps_rest": eps - first}


def by_axis(lists: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field for each number of these lists, which have one for each of the last axes of an image."""
    return {
        f"{name}_{axis}": number
        for name, numbers in lists.items()
        for axis, number in zip(AXES[-len(numbers) :], numbers, strict=True)
    }


class OpBuilder:
    """The ops of one node: its tensors by argument, its attributes, and temporaries.

    Args:
        names: The arguments that are tensors, in order; the node may record them itself.
    """

    def __init__(self, node: OpNode, *names: str) -> None:
        self.node = node
        self.tensors: dict[str, Operand] = dict(zip(node.operands or names, node.inputs, strict=False))
        self.ops: list[BackendOp] = []

    def present(self, *names: str) -> list[Operand]:
        """Return the tensors that are given of these arguments."""
        return [self.tensors[name] for name in names if name in self.tensors]

    def temporary(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Temporary:
        return Temporary(f"{self.node.name}.{name}", TensorType(tuple(shape), dtype))

    def like(self, name: str, operand: Operand) -> Temporary:
        type = tensor_type(operand)
        return self.temporary(name, type.static_shape, type.dtype)

    def like_scalar(self, name: str) -> Temporary:
        return self.temporary(name, (), tensor_type(self.node.outputs[0]).dtype)

    def statistics(self, names: Sequence[str], shape: Sequence[int]) -> list[Temporary]:
        """Return temporaries for numbers of rows, in the dtype that rows are computed in."""
        is_double = tensor_type(self.node.outputs[0]).dtype is torch.float64
        return [self.temporary(name, shape, torch.float64 if is_double else torch.float32) for name in names]

    def results(self) -> list[Operand]:
        """Return the results of the node; one that is None stands for a tensor without elements."""
        dtype = tensor_type(self.node.inputs[0]).dtype
        return [
            value if isinstance(value.type, TensorType) else self.temporary(f"none_{i}", (0,), dtype)
            for i, value in enumerate(self.node.outputs)
        ]

    def add(
        self, kind: str, inputs: Sequence[Operand], outputs: Sequence[Operand], /, **fields: float
    ) -> list[BackendOp]:
        """Add an op of the node; return all so far."""
        self.ops.append(make_op(self.node, kind, inputs, outputs, **fields))
        return self.ops
