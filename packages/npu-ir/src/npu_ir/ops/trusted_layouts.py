"""Ops whose kernels trust the layout of their tensors, called with tensors of any layout.

PyTorch's autograd makes such a tensor contiguous before it calls the op, and the kernel reads its memory
without a look at its strides (torch 2.13). A trace on FakeTensors has no copy where they state that the
tensor is contiguous already, and of some ops they state that wrongly: ``elu_backward`` returns the strides of
its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

# From the arguments of a call, and the places of those whose layout is trusted: these as they are read.
Layout = Callable[[Sequence[Any], Sequence[int]], "dict[int, torch.Tensor]"]


def accept_any_layout(op: Any) -> Callable[..., Any]:
    """Return a function that computes what an op does, whatever the strides of its tensors are.

    It is the op itself, unless its kernel trusts them.
    """
    trusted = _TRUSTED.get(str(op))
    if trusted is None:
        function: Callable[..., Any] = op
        return function
    layout, places = trusted

    def call(*args: Any, **kwargs: Any) -> Any:
        fitting = layout(args, places)
        return op(*(fitting.get(place, item) for place, item in enumerate(args)), **kwargs)

    return call


def trusted_places(op_type: str) -> tuple[int, ...]:
    """Return the positions of the arguments whose layout the kernel of an op trusts.

    It reads them right where all are contiguous, or all images among them channels-last.
    """
    trusted = _TRUSTED.get(op_type)
    return () if trusted is None else trusted[1]


def _contiguous(args: Sequence[Any], places: Sequence[int]) -> dict[int, torch.Tensor]:
    return {place: args[place].contiguous() for place in places}


def _dense_rows(args: Sequence[Any], places: Sequence[int]) -> dict[int, torch.Tensor]:
    """Have the elements of a row, the last dimension, next to each other."""
    tensors = {place: args[place] for place in places}
    return {place: item if item.stride(-1) == 1 else item.contiguous() for place, item in tensors.items()}


def _group_norm(args: Sequence[Any], places: Sequence[int]) -> dict[int, torch.Tensor]:
    (place,) = places
    return {place: args[place] if _dense_format(args[place]) is not None else args[place].contiguous()}


def _group_norm_backward(args: Sequence[Any], places: Sequence[int]) -> dict[int, torch.Tensor]:
    gradient, input, mean, rstd = (args[place] for place in places)
    format = _dense_format(input) or torch.contiguous_format
    tensors = gradient.contiguous(memory_format=format), input.contiguous(memory_format=format)
    return dict(zip(places, (*tensors, mean.contiguous(), rstd.contiguous()), strict=True))


def _dense_format(tensor: torch.Tensor) -> torch.memory_format | None:
    """Return the memory format in which a tensor has no gaps; None if there is none."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    formats = (
        [torch.contiguous_format] if last is None or not tensor.is_cpu else [torch.contiguous_format, last]
    )
    return next((format for format in formats if tensor.is_contiguous(memory_format=format)), None)


_TRUSTED: Mapping[str, tuple[Layout, tuple[int, ...]]] = {
    "aten.native_group_norm.default": (_group_norm, (0,)),
    "aten.native_group_norm_backward.default": (_group_norm_backward, (0, 1, 2, 3)),
    "aten.native_layer_norm_backward.default": (_contiguous, (3, 4)),
    "aten.nll_loss2d_backward.default": (_contiguous, (1,)),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (_dense_rows, (0, 1, 2)),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (_dense_rows, (0, 1, 2, 3, 4)),
}
