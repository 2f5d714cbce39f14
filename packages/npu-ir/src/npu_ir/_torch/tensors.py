"""Tensors: wrapper subclasses, storages, lazy views."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch


def make_allocator(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Callable[[], torch.Tensor]:
    """Return a function that returns uninitialized tensors, with all arguments bound in advance.

    On the CPU it parses no keywords and asks no modes, which takes 0.4 of the time of `torch.empty_strided`.
    """
    if device.type == "cpu":
        from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

        return functools.partial(_empty_strided_cpu, shape, strides, dtype)
    return functools.partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)


def is_wrapper(tensor: Any) -> bool:
    """Return whether ``tensor`` is of a subclass that wraps other tensors and can be flattened."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def wrapped_parts(tensor: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that a wrapper subclass consists of, by name."""
    names, _ = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names}


def replace_parts(tensor: Any, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return a tensor of the same wrapper subclass that consists of other tensors."""
    _, context = tensor.__tensor_flatten__()
    made: torch.Tensor = type(tensor).__tensor_unflatten__(
        dict(parts), context, tensor.size(), tensor.stride()
    )
    return made


def plain_storage_id(tensor: torch.Tensor) -> int:
    """Return an id of the storage of a strided tensor, valid while the storage is alive."""
    return int(tensor.untyped_storage()._cdata)  # not data_ptr(), which is 0 for fake and meta tensors


def is_functorch_wrapper(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a wrapper of a ``torch.func`` transform (``vmap``, ``grad``)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def negated_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``-tensor`` as a view, with the lazy neg bit set."""
    negated: torch.Tensor = torch._neg_view(tensor)
    return negated
