"""Facts of tensors that calls return: their strides, where they start, bitwise equality."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from npu_ir import Graph, TensorType
from npu_ir.core.storage import address_range, storage_key
from npu_ir.core.tensor_bytes import same_data
from npu_ir.core.types import Type
from npu_ir.graph.binding import with_strides
from npu_runtime._torch.tensors import packed_layout

_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def memory_keys(item: Any) -> frozenset[Any]:
    """Return keys of the memory of an item, of which tensors that share memory have one in common.

    That of a sparse tensor is that of its indices and values. Other tensors without strides, such as weights
    packed for oneDNN, share theirs with nothing else.
    """
    if not isinstance(item, torch.Tensor):
        return frozenset()
    if item.layout is torch.sparse_coo:
        return frozenset(map(storage_key, (item._indices(), item._values())))
    if item.layout in _BY_ROWS:
        return frozenset(map(storage_key, (item.crow_indices(), item.col_indices(), item.values())))
    if item.layout in _BY_COLUMNS:
        return frozenset(map(storage_key, (item.ccol_indices(), item.row_indices(), item.values())))
    return frozenset((storage_key(item),))


def layouts_of(graph: Graph) -> Iterator[torch.layout]:
    """Yield the layouts of all tensors of a graph and of its regions."""
    for part in graph.graphs():
        for node in part.nodes:
            for value in (*node.inputs, *node.outputs):
                if isinstance(value.type, TensorType):
                    yield value.type.layout


def has_stated_strides(output: Any, type: Type) -> bool:
    """Return whether a tensor has the strides of a type, and no lazy conj/neg bit; True for non-tensors."""
    if not isinstance(output, torch.Tensor) or not isinstance(type, TensorType):
        return True
    if output.layout is not torch.strided:
        return output.layout is type.layout is packed_layout()  # it has no strides
    if output.is_conj() or output.is_neg():
        return False  # resolve_conj and resolve_neg allocate for such an operand alone
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


def is_inexact(item: Any) -> bool:
    """Return whether an item is a tensor of floating-point or complex numbers."""
    is_tensor = isinstance(item, torch.Tensor)
    return is_tensor and (item.dtype.is_floating_point or item.dtype.is_complex)


def with_stated_strides(tensor: Any, type: Type) -> Any:
    """Return a tensor with exactly the strides of its type: a copy if they differ.

    If only strides of axes of size 1 differ, it is a view: they address nothing, but kernels choose the
    memory format of their results by them.
    """
    is_strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    if not is_strided or not isinstance(type, TensorType) or type.symbols:
        return tensor
    strides = type.static_strides
    if tensor.stride() == strides:
        return tensor
    tensor = with_strides(tensor, type)
    pairs = zip(type.static_shape, tensor.stride(), strides, strict=True)
    differs_in_ones = all(actual == wanted for size, actual, wanted in pairs if size > 1)
    return tensor.detach().as_strided(type.static_shape, strides) if differs_in_ones else tensor


def find_overlapping(tensors: Mapping[str, torch.Tensor], changed: Collection[str]) -> tuple[str, str] | None:
    """Return the names of two overlapping tensors, a ``changed`` one first; None if there are none."""
    spans = sorted(
        (*address_range(item), name)
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
