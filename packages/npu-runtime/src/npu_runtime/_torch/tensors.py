"""Tensors: FakeTensors, opaque layouts, guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir._torch.fake import is_fake


def packed_layout() -> torch.layout:
    """Return the opaque layout of tensors that oneDNN packs."""
    layout: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
    return layout


def find_data_problem(item: Any) -> str | None:
    """Return what a tensor is that has no data to read, and no memory to write to; None if it has."""
    if not isinstance(item, torch.Tensor):
        return None
    if is_fake(item):
        return "a FakeTensor"
    return "on the device meta" if item.is_meta else None


def new_fake(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return a FakeTensor of the type of a strided tensor, which may be fake itself; in memory of its own.

    What the mode itself does for that takes ten times as long.
    """
    from torch._subclasses import FakeTensor

    with torch._C._DisableTorchDispatch():
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return FakeTensor(mode, meta, tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device)


def make_tensor_guard(
    tensors: Sequence[torch.Tensor],
    sizes: Sequence[Sequence[Any]],
    strides: Sequence[Sequence[Any]],
) -> Callable[..., bool]:
    """Return a C function that tells whether tensors agree with these; each is another object.

    They agree in Python type, dispatch keys (layout, lazy conj/neg bits, inference mode of the thread),
    dtype, device, requires_grad, rank, and in sizes and strides where these are not None. It takes 80 ns per
    tensor, where reading the attributes in Python takes 350 ns (torch 2.13).
    """
    from torch._C._dynamo.guards import TensorGuards

    open_sizes: list[Any] = [list(item) for item in sizes]
    open_strides: list[Any] = [list(item) for item in strides]
    guards = TensorGuards(*tensors, dynamic_dims_sizes=open_sizes, dynamic_dims_strides=open_strides)
    return guards.check
