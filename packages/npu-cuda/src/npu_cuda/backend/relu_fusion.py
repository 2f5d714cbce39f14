"""Fusion of relus into the batch norms before them, and of their gradients into those of the norms.

The norm writes what the relu returns, and its gradient reads the gradient of that: one pass over memory
fewer in each direction. The results are those of the ops one by one, to the bit.
"""

from __future__ import annotations

import dataclasses
import struct
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from npu_cuda.backend.selection import select_kernel
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir.plugins.backend import BackendOp, Operand

_ATTRS = "<fIf"  # of a norm: eps, flags, the rest of eps
_RELU = 2  # of the flags
_ROUNDED_ONCE = (torch.float32, torch.float64)  # dtypes that norms compute in


def join_relus(ops: Sequence[BackendOp], results: Iterable[Operand], device: str) -> list[BackendOp]:
    """Return ops that compute the same, relus joined with the batch norms that nothing else reads.

    Args:
        ops: In execution order, with their kernels.
        results: What is read after them.
        device: "host" or "cuda", whose kernels they have.
    """
    reads = Counter(operand for op in ops for operand in op.inputs) + Counter(results)
    writers = {operand: op for op in ops for operand in op.outputs}
    joined: dict[int, BackendOp | None] = {}  # by the id of an op: what it becomes
    for op in ops:
        writer = writers.get(op.inputs[0]) if op.inputs and reads[op.inputs[0]] == 1 else None
        if writer is None:
            continue
        if op.kind == "EltwiseRelu" and writer.kind == "BatchNormFwd" and writer.outputs[0] is op.inputs[0]:
            norm, relu, inputs = writer, op, writer.inputs
            outputs = (op.outputs[0], *writer.outputs[1:])
        elif op.kind == "BatchNormBwd" and writer.kind == "ReluBwd":
            norm, relu, outputs = op, writer, op.outputs
            inputs = (writer.inputs[0], *op.inputs[1:], writer.inputs[1])
        else:
            continue
        fused = _fused(norm, relu, inputs, outputs, device)
        if fused is not None:
            joined[id(norm)], joined[id(relu)] = fused, None
    return [item for op in ops if (item := joined.get(id(op), op)) is not None]


def _fused(
    norm: BackendOp, relu: BackendOp, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...], device: str
) -> BackendOp | None:
    """Return the norm with its relu; None where that rounds otherwise, or no kernel computes it."""
    types = [tensor_type(operand) for operand in (*relu.inputs, *relu.outputs)]
    if types[0].dtype not in _ROUNDED_ONCE or len({(type.dtype, type.static_strides) for type in types}) > 1:
        return None
    eps, flags, eps_rest = struct.unpack(_ATTRS, norm.attrs)
    packed = struct.pack(_ATTRS, eps, flags | _RELU, eps_rest)
    nodes = tuple(dict.fromkeys((*norm.nodes, *relu.nodes)))
    fused = dataclasses.replace(norm, inputs=inputs, outputs=outputs, nodes=nodes, attrs=packed)
    kernel, _ = select_kernel(fused, device, 0)
    return dataclasses.replace(fused, kernel=kernel) if kernel else None
