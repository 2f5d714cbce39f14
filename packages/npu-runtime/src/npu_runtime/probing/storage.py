"""What is to be seen of tensors: where they lie, and whether two are the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from npu_ir import OpNode, TensorType
from npu_ir.core.tensor_bytes import same_data
from npu_ir.core.types import Type
from npu_ir.graph.binding import overlap, with_strides
from npu_runtime._torch import memory_id, packed_layout, share_memory


def shares_memory(left: Any, right: Any) -> bool:
    """Return whether two tensors lie in the same memory; False for anything else."""
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
    if not tensors or left.layout is not torch.strided or right.layout is not torch.strided:
        return tensors and left is right
    return share_memory(left, right)


def memory_key(item: Any) -> tuple[bool, int] | None:
    """Return what is equal for those that `shares_memory` is true of; None for what is no tensor."""
    if not isinstance(item, torch.Tensor):
        return None
    return (True, memory_id(item)) if item.layout is torch.strided else (False, id(item))


def is_laid_out(output: Any, type: Type) -> bool:
    """Return whether the strides of a tensor are those of a type; so are those of anything else."""
    if not isinstance(output, torch.Tensor) or not isinstance(type, TensorType):
        return True
    if output.layout is not torch.strided:
        return output.layout is type.layout is packed_layout()  # it has no strides
    # Those of axes of size 1, too: kernels choose by them how to lay out what they return.
    return bool(output.stride() == type.steps)


def is_at_start(output: Any) -> bool:
    """Return whether a tensor begins where its memory begins, and shows what is there."""
    return (
        isinstance(output, torch.Tensor)
        and output.layout is torch.strided
        and output.storage_offset() == 0
        and not output.is_conj()
        and not output.is_neg()
    )


def is_same(left: Any, right: Any) -> bool:
    """Return whether two outputs have the same type, strides and bits."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return type(left) is type(right) and bool(left == right)
    if left.layout is torch.strided and left.stride() != right.stride():
        return False
    return bool(left.layout is right.layout) and same_data(left, right)


def could_hold(data: Sequence[Any], output: Any, node: OpNode) -> bool:
    """Return whether the first input, read nowhere else in the call, has the layout of the output and no gaps."""
    first = data[0] if data else None
    return (
        isinstance(first, torch.Tensor)
        and isinstance(output, torch.Tensor)
        and first.layout is output.layout is torch.strided
        and (first.dtype, first.shape, first.stride()) == (output.dtype, output.shape, output.stride())
        and not shares_memory(first, output)
        and sum(value is node.inputs[0] for value in node.inputs) == 1
        and TensorType.of(first).numel == extent(first)
    )


def extent(tensor: torch.Tensor) -> int:
    """Return how many elements lie between the first and the last of a tensor, both included."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0


def is_inexact(item: Any) -> bool:
    """Return whether something is a tensor of floating-point or complex numbers."""
    is_tensor = isinstance(item, torch.Tensor)
    return is_tensor and (item.dtype.is_floating_point or item.dtype.is_complex)


def laid_out(tensor: Any, type: Type) -> Any:
    """Return a tensor with the very strides of its type: a copy where it is laid out otherwise.

    Where only axes of size 1 differ, it is a view: these strides mean nothing, but kernels choose by them how to lay
    out what they return.
    """
    tensor = with_strides(tensor, type)
    is_strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    if not is_strided or not isinstance(type, TensorType) or type.symbols or tensor.stride() == type.steps:
        return tensor
    pairs = zip(type.sizes, tensor.stride(), type.steps, strict=True)
    differs_in_ones = all(actual == wanted for size, actual, wanted in pairs if size > 1)
    return tensor.detach().as_strided(type.sizes, type.steps) if differs_in_ones else tensor


def overlaps(type: Type) -> bool:
    """Return whether a type states that elements share memory."""
    return isinstance(type, TensorType) and type.strides is not None and overlap(type.sizes, type.steps)


def overlapping(tensors: Mapping[str, torch.Tensor], changed: Collection[str]) -> tuple[str, str] | None:
    """Return the names of two tensors whose memory overlaps, one that is ``changed`` first; None if there are none."""
    spans = sorted(
        (item.data_ptr(), item.data_ptr() + _reach(item) * item.dtype.itemsize, name)
        for name, item in tensors.items()
        if item.layout is torch.strided and item.numel() and item.data_ptr()
    )
    end, before = 0, ""
    for start, stop, name in spans:
        if start < end and (name in changed or before in changed):
            return (name, before) if name in changed else (before, name)
        if stop > end:
            end, before = stop, name
    return None


def _reach(tensor: torch.Tensor) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
