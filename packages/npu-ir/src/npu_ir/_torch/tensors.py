"""Tensors: wrapper subclasses, storages, lazy views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


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
