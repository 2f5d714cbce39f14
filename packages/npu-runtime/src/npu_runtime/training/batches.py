"""Batches of an iterable, as the arguments of calls."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import torch

from npu_ir.core.structure import flatten, unflatten
from npu_runtime.errors import TracingError

_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}

# Positional and keyword arguments.
Batch: TypeAlias = "tuple[tuple[Any, ...], Mapping[str, Any]]"


def draw_batches(batches: Iterable[Any], limit: int | None, device: torch.device) -> Iterator[Batch]:
    """Return an iterator over the first batches of an iterable, all without a limit; it draws no other.

    Args:
        batches: Tuples or lists have the arguments of a call, mappings those by name; anything else is one.
        limit: The number of batches, at most.
        device: A CUDA device that tensors on the CPU are copied to; or the CPU.

    Raises:
        TracingError: There is no such iterable, or no such limit.
    """
    try:
        drawn = itertools.islice(batches, limit)
    except (TypeError, ValueError) as error:
        raise TracingError(
            f"run takes an iterable of batches and a number of steps: {error}",
            fix="give a DataLoader, or a list of tuples such as (input, target)",
        ) from error
    calls = map(_as_call, drawn)
    return map(functools.partial(_copy_to, device), calls) if device.type == "cuda" else calls


def _as_call(batch: Any) -> Batch:
    if isinstance(batch, (tuple, list)):
        return tuple(batch), {}
    return ((), dict(batch)) if isinstance(batch, Mapping) else ((batch,), {})


def _copy_to(device: torch.device, call: Batch) -> Batch:
    """Return a call with tensors on a device, to which they are copied while Python goes on.

    Each has its own pinned memory, since the iterable may reuse its own; PyTorch gives that away only when
    the copy has been made.
    """
    leaves, structure = flatten(call)
    moved = [
        torch.empty_like(item, pin_memory=True).copy_(item).to(device, non_blocking=True)
        if isinstance(item, torch.Tensor) and item.device.type == "cpu"
        else item
        for item in leaves
    ]
    return cast("Batch", unflatten(structure, moved))


def batch_signature(batch: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable:
    """Return the signature of a batch: structure, types of its tensors, and its other leaves by value.

    Raises:
        TracingError: A tensor is sparse.
    """
    leaves, structure = flatten((batch, dict(named)))
    return structure, tuple(map(_leaf_signature, leaves))


def _leaf_signature(item: Any) -> Hashable:
    if isinstance(item, torch.Tensor):
        if item.layout in _SPARSE:
            raise TracingError(
                f"the batch has a tensor of the layout {item.layout}, which steps do not take",
                fix="give a dense one: .to_dense()",
            )
        return type(item), item.shape, item.stride(), item.dtype, item.device
    return type(item), repr(item)
