"""Fusion of copies to channels-last into the packed convolutions before them, which write what is wanted.

A convolution of images of one channel has no layout of its own, and writes channels side by side fastest.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from npu_cuda.backend.selection import select_kernel
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir.plugins.backend import BackendOp, Operand


def join_copies(ops: Sequence[BackendOp], results: Iterable[Operand], device: str) -> list[BackendOp]:
    """Return ops that compute the same, without copies to channels-last of what a convolution has written.

    Args:
        ops: In execution order, with their kernels.
        results: What is read after them.
        device: "host" or "cuda", whose kernels they have.
    """
    reads = Counter(operand for op in ops for operand in op.inputs) + Counter(results)
    writers = {operand: op for op in ops for operand in op.outputs}
    joined: dict[int, BackendOp | None] = {}  # by the id of an op: what it becomes
    for op in ops:
        writer = writers.get(op.inputs[0]) if op.kind == "Copy" and reads[op.inputs[0]] == 1 else None
        if writer is None or writer.kind != "PackedConv" or op.overwrites or not _is_to_channels_last(op):
            continue
        nodes = tuple(dict.fromkeys((*writer.nodes, *op.nodes)))
        whole = dataclasses.replace(writer, outputs=op.outputs, nodes=nodes)
        kernel, _ = select_kernel(whole, device, 0)
        if kernel:
            joined[id(writer)], joined[id(op)] = dataclasses.replace(whole, kernel=kernel), None
    return [item for op in ops if (item := joined.get(id(op), op)) is not None]


def _is_to_channels_last(copy: BackendOp) -> bool:
    source, result = tensor_type(copy.inputs[0]), tensor_type(copy.outputs[0])
    same = (source.dtype, source.shape) == (result.dtype, result.shape)
    return same and result.static_strides[1] == 1
