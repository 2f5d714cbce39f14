"""The memory of tensors: how much of it they span, whose storage it is, and whether it overlaps.

Shapes, strides and offsets count elements; ranges and sizes count bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from npu_ir._torch.tensors import is_wrapper, negated_view, plain_storage_id, wrapped_parts
from npu_ir.core.types import TensorType, Type

# The first byte, and the one after the last; (0, 0) for an empty tensor.
ByteRange: TypeAlias = tuple[int, int]


def element_span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last one in memory, gaps included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def span_bytes(type: Type) -> int:
    """Return the bytes from the first to the last element of a type, gaps included; 0 for numbers."""
    if not isinstance(type, TensorType):
        return 0
    if type.strides is None:
        return math.prod(type.static_shape) * type.dtype.itemsize
    return element_span(type.static_shape, type.static_strides) * type.dtype.itemsize


def may_self_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements may share memory; conservative, so True for some that do not."""
    # By increasing stride, the elements are distinct if each stride exceeds the span of all inner axes.
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements fill their span without gaps or overlaps, in any order of the axes."""
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def has_overlapping_elements(type: Type) -> bool:
    """Return whether the elements of a type overlap in memory, as those of expanded tensors do."""
    return (
        isinstance(type, TensorType)
        and type.strides is not None
        and may_self_overlap(type.static_shape, type.static_strides)
    )


def storage_id(tensor: torch.Tensor) -> int:
    """Return an id of the storage of a tensor; fake and meta tensors have one, too.

    A wrapper subclass has the storage of its first inner tensor.
    """
    while is_wrapper(tensor):
        tensor = next(iter(wrapped_parts(tensor).values()))
    return plain_storage_id(tensor)


def storage_key(item: Any) -> tuple[bool, int] | None:
    """Return a key that is equal exactly if `shares_memory` holds; None for non-tensors."""
    if not isinstance(item, torch.Tensor):
        return None
    return (True, plain_storage_id(item)) if item.layout is torch.strided else (False, id(item))


def shares_memory(left: Any, right: Any) -> bool:
    """Return whether two items are tensors in one storage; those without strides, whether they are one."""
    tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
    if not tensors or left.layout is not torch.strided or right.layout is not torch.strided:
        return tensors and left is right
    return shares_storage(left, right)


def shares_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two strided tensors share a storage, empty ones included."""
    return plain_storage_id(left) == plain_storage_id(right)


def storage_address(item: Any) -> int | None:
    """Return the address of the storage of a strided tensor; None for anything else, and without data.

    Storages that are made of the same foreign memory, as by ``torch.from_numpy``, differ in their id only.
    """
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided:
        return None
    return item.untyped_storage().data_ptr() or None


def storage_span(item: Any) -> ByteRange | None:
    """Return the addresses of the storage of a strided tensor; None for anything else, and without data."""
    address = storage_address(item)
    return None if address is None else (address, address + item.untyped_storage().nbytes())


def shares_storage_address(left: Any, right: Any) -> bool:
    """Return whether two items are strided tensors whose storages have data at the same address."""
    address = storage_address(left)
    return address is not None and address == storage_address(right)


def storage_range(tensor: torch.Tensor) -> ByteRange:
    """Return the range of its storage that a strided tensor spans."""
    span = element_span(tensor.shape, tensor.stride())
    first = int(tensor.storage_offset())
    return (first * tensor.itemsize, (first + int(span)) * tensor.itemsize) if span else (0, 0)


def address_range(tensor: torch.Tensor) -> ByteRange:
    """Return the range of addresses that a strided tensor spans."""
    if not tensor.numel():
        return 0, 0
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    return start, start + element_span(tensor.shape, tensor.stride()) * tensor.itemsize


def ranges_overlap(left: ByteRange, right: ByteRange) -> bool:
    """Return whether two ranges have common bytes."""
    return max(left[0], right[0]) < min(left[1], right[1])


def flat_view(item: torch.Tensor) -> torch.Tensor:
    """Return a 1-D view of all memory that a tensor spans, gaps included: ``copy_`` refuses overlaps."""
    detached = item.detach()
    # resolve_conj() and resolve_neg() would change the strides of a tensor with gaps or overlaps.
    if detached.is_conj():
        return flat_view(detached.conj()).conj()
    if detached.is_neg():
        return negated_view(flat_view(negated_view(detached)))
    return detached.as_strided((element_span(detached.shape, detached.stride()),), (1,))


def copy_with_strides(item: Any) -> Any:
    """Return a copy of a tensor in separate memory, with the same strides; any other object unchanged."""
    if not isinstance(item, torch.Tensor):
        return item
    return flat_view(item).clone().as_strided(item.shape, item.stride(), 0)


def copy_memory(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy a tensor into another of the same type and strides, whose elements may overlap."""
    flat_view(target).copy_(flat_view(source))
