"""Storage of tensors: shared memory, strides, spans, bitwise equality."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from npu_ir import OpNode, TensorType
from npu_ir.core.tensor_bytes import same_data
from npu_ir.core.types import Type
from npu_ir.graph.binding import may_self_overlap, with_strides
from npu_runtime._torch import packed_layout, shares_storage, storage_id


def shares_memory(left: Any, right: Any) -> bool:
    """Return whether two items are tensors in the same storage."""
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
    if not tensors or left.layout is not torch.strided or right.layout is not torch.strided:
        return tensors and left is right
    return shares_storage(left, right)


def storage_key(item: Any) -> tuple[bool, int] | None:
    """Return a storage key, equal exactly if `shares_memory` holds; None for non-tensors."""
    if not isinstance(item, torch.Tensor):
        return None
    return (True, storage_id(item)) if item.layout is torch.strided else (False, id(item))


def has_stated_strides(output: Any, type: Type) -> bool:
    """Return whether a tensor has the strides of a type; True for non-tensors."""
    if not isinstance(output, torch.Tensor) or not isinstance(type, TensorType):
        return True
    if output.layout is not torch.strided:
        return output.layout is type.layout is packed_layout()  # it has no strides
    # Including axes of size 1: kernels choose the memory format of their results by them.
    return bool(output.stride() == type.static_strides)


def starts_storage(output: Any) -> bool:
    """Return whether a tensor starts at the beginning of its storage and has no lazy conj/neg bit."""
    return (
        isinstance(output, torch.Tensor)
        and output.layout is torch.strided
        and output.storage_offset() == 0
        and not output.is_conj()
        and not output.is_neg()
    )


def is_bitwise_equal(left: Any, right: Any) -> bool:
    """Return whether two outputs have the same type, strides and bits."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return type(left) is type(right) and bool(left == right)
    if left.layout is torch.strided and left.stride() != right.stride():
        return False
    return bool(left.layout is right.layout) and same_data(left, right)


def fits_first_input(data: Sequence[Any], output: Any, node: OpNode) -> bool:
    """Return whether an output fits into the first input: same layout, dense, and read once in the call."""
    first = data[0] if data else None
    return (
        isinstance(first, torch.Tensor)
        and isinstance(output, torch.Tensor)
        and first.layout is output.layout is torch.strided
        and (first.dtype, first.shape, first.stride()) == (output.dtype, output.shape, output.stride())
        and not shares_memory(first, output)
        and sum(value is node.inputs[0] for value in node.inputs) == 1
        and TensorType.of(first).numel == element_span(first)
    )


def element_span(tensor: torch.Tensor) -> int:
    """Return the span of a tensor in elements, from its first to its last element, both included."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0


def is_inexact(item: Any) -> bool:
    """Return whether an item is a tensor of floating-point or complex numbers."""
    is_tensor = isinstance(item, torch.Tensor)
    return is_tensor and (item.dtype.is_floating_point or item.dtype.is_complex)


def with_stated_strides(tensor: Any, type: Type) -> Any:
    """Return a tensor with exactly the strides of its type: a copy if they differ.

    If only strides of axes of size 1 differ, it is a view: they address nothing, but kernels choose the
    memory format of their results by them.
    """
    tensor = with_strides(tensor, type)
    is_strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    if (
        not is_strided
        or not isinstance(type, TensorType)
        or type.symbols
        or tensor.stride() == type.static_strides
    ):
        return tensor
    pairs = zip(type.static_shape, tensor.stride(), type.static_strides, strict=True)
    differs_in_ones = all(actual == wanted for size, actual, wanted in pairs if size > 1)
    return tensor.detach().as_strided(type.static_shape, type.static_strides) if differs_in_ones else tensor


def has_overlapping_elements(type: Type) -> bool:
    """Return whether the elements of a type overlap in memory, as those of expanded tensors do."""
    return (
        isinstance(type, TensorType)
        and type.strides is not None
        and may_self_overlap(type.static_shape, type.static_strides)
    )


def find_overlapping(tensors: Mapping[str, torch.Tensor], changed: Collection[str]) -> tuple[str, str] | None:
    """Return the names of two overlapping tensors, a ``changed`` one first; None if there are none."""
    spans = sorted(
        (item.data_ptr(), item.data_ptr() + _storage_span(item) * item.dtype.itemsize, name)
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


def _storage_span(tensor: torch.Tensor) -> int:
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
