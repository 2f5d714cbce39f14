"""Tensors: storages, FakeTensors, opaque layouts."""

from __future__ import annotations

import torch


def shares_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two strided tensors share a storage, empty ones included."""
    return storage_id(left) == storage_id(right)


def storage_id(tensor: torch.Tensor) -> int:
    """Return the identity of a strided tensor's storage, valid while the storage is alive."""
    return int(tensor.untyped_storage()._cdata)


def packed_layout() -> torch.layout:
    """Return the opaque layout of tensors that oneDNN packs."""
    layout: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
    return layout


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a FakeTensor."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor)
