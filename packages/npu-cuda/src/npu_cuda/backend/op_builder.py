"""Builds the native ops of one node.

Tensors of a native op that its node has no value for are temporaries: statistics that nobody reads, or,
without elements, gradients that the node does not ask for.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import torch

from npu_cuda.backend.pointwise_rules import Pack
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

Lowered = list[BackendOp] | str


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


class OpBuilder:
    """The ops of one node: its tensors by argument, its attributes, and temporaries.

    Args:
        names: The arguments that are tensors, in order; the node may record them itself.
    """

    def __init__(self, node: OpNode, pack: Pack, *names: str) -> None:
        self.node = node
        self.pack = pack
        self.tensors: dict[str, Operand] = dict(zip(node.operands or names, node.inputs, strict=False))
        self.ops: list[BackendOp] = []

    def type(self, operand: Operand) -> TensorType:
        assert isinstance(operand.type, TensorType)
        return operand.type

    def present(self, *names: str) -> list[Operand]:
        """Return the tensors that are given of these arguments."""
        return [self.tensors[name] for name in names if name in self.tensors]

    def temporary(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Temporary:
        return Temporary(f"{self.node.name}.{name}", TensorType(tuple(shape), dtype))

    def like(self, name: str, operand: Operand) -> Temporary:
        type = self.type(operand)
        return self.temporary(name, type.static_shape, type.dtype)

    def like_scalar(self, name: str) -> Temporary:
        return self.temporary(name, (), self.type(self.node.outputs[0]).dtype)

    def statistics(self, names: Sequence[str], shape: Sequence[int]) -> list[Temporary]:
        """Return temporaries for numbers of rows, in the dtype that rows are computed in."""
        is_double = self.type(self.node.outputs[0]).dtype is torch.float64
        return [self.temporary(name, shape, torch.float64 if is_double else torch.float32) for name in names]

    def results(self) -> list[Operand]:
        """Return the results of the node; one that is None stands for a tensor without elements."""
        dtype = self.type(self.node.inputs[0]).dtype
        return [
            value if isinstance(value.type, TensorType) else self.temporary(f"none_{i}", (0,), dtype)
            for i, value in enumerate(self.node.outputs)
        ]

    def add(
        self,
        kind: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        schema: str = "",
        **attrs: float,
    ) -> list[BackendOp]:
        schema_id, packed = self.pack(schema, **attrs) if schema else (0, b"")
        op = BackendOp(kind, tuple(inputs), tuple(outputs), (self.node,), schema_id=schema_id, attrs=packed)
        self.ops.append(op)
        return self.ops
