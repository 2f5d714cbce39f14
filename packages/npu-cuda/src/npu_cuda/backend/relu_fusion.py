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

from npu_cuda import attrs
from npu_cuda.backend.selection import select_kernel
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir.plugins.backend import BackendOp, Operand

_RELU = 2  # of the flags of a norm
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
        if op.kind == "EltwiseRelu":
            norm = writers.get(op.inputs[0])
            if norm is None or norm.kind != "BatchNormFwd" or norm.outputs[0] is not op.inputs[0]:
                continue
            inputs, outputs = norm.inputs, (op.outputs[0], *norm.outputs[1:])
            between, place, gone = norm.outputs[0], norm, op
        elif op.kind == "BatchNormBwd":
            relu = writers.get(op.inputs[0])
            if relu is None or relu.kind != "ReluBwd":
                continue
            inputs, outputs = (relu.inputs[0], *op.inputs[1:], relu.inputs[1]), op.outputs
            between, place, gone = op.inputs[0], op, relu
        else:
            continue
        if reads[between] == 1:
            fused = _fused(place, gone, inputs, outputs, device)
            if fused is not None:
                joined[id(place)], joined[id(gone)] = fused, None
    return [item for op in ops if (item := joined.get(id(op), op)) is not None]


def _fused(
    norm: BackendOp, relu: BackendOp, inputs: Sequence[Operand], outputs: Sequence[Operand], device: str
) -> BackendOp | None:
    """Return the norm with its relu; None where that rounds otherwise, or no kernel computes it."""
    types = [tensor_type(operand) for operand in (*relu.inputs, *relu.outputs)]
    if types[0].dtype not in _ROUNDED_ONCE or len({(type.dtype, type.static_strides) for type in types}) > 1:
        return None
    eps, flags, eps_rest = struct.unpack("<fIf", norm.attrs)
    name = "BNEP" if norm.kind == "BatchNormFwd" else "BNEB"
    schema_id, packed = attrs(name, eps=eps, flags=flags | _RELU, eps_rest=eps_rest)
    nodes = tuple(dict.fromkeys((*norm.nodes, *relu.nodes)))
    fused = BackendOp(norm.kind, tuple(inputs), tuple(outputs), nodes, norm.kernel, schema_id, packed)
    kernel, _ = select_kernel(fused, device, 0)
    return dataclasses.replace(fused, kernel=kernel) if kernel else None
