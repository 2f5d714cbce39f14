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

Layout = Callable[[Sequence[Any]], "dict[int, torch.Tensor]"]


def accept_any_layout(op: Any) -> Callable[..., Any]:
    """Return a function that computes what an op does, whatever the strides of its tensors are.

    It is the op itself, unless its kernel trusts them.
    """
    layout = _LAYOUTS.get(str(op))
    if layout is None:
        function: Callable[..., Any] = op
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        fitting = layout(args)
        return op(*(fitting.get(place, item) for place, item in enumerate(args)), **kwargs)

    return call


def _contiguous(*places: int) -> Layout:
    return lambda args: {place: args[place].contiguous() for place in places}


def _dense_rows(*places: int) -> Layout:
    """Have the elements of a row, the last dimension, next to each other."""

    def layout(args: Sequence[Any]) -> dict[int, torch.Tensor]:
        return {
            place: args[place] if args[place].stride(-1) == 1 else args[place].contiguous()
            for place in places
        }

    return layout


def _group_norm(args: Sequence[Any]) -> dict[int, torch.Tensor]:
    return {0: args[0] if _dense_format(args[0]) is not None else args[0].contiguous()}


def _group_norm_backward(args: Sequence[Any]) -> dict[int, torch.Tensor]:
    gradient, input, mean, rstd = args[:4]
    format = _dense_format(input) or torch.contiguous_format
    tensors = gradient.contiguous(memory_format=format), input.contiguous(memory_format=format)
    return dict(enumerate((*tensors, mean.contiguous(), rstd.contiguous())))


def _dense_format(tensor: torch.Tensor) -> torch.memory_format | None:
    """Return the memory format in which a tensor has no gaps; None if there is none."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    formats = (
        [torch.contiguous_format] if last is None or not tensor.is_cpu else [torch.contiguous_format, last]
    )
    return next((format for format in formats if tensor.is_contiguous(memory_format=format)), None)


_LAYOUTS: Mapping[str, Layout] = {
    "aten.native_group_norm.default": _group_norm,
    "aten.native_group_norm_backward.default": _group_norm_backward,
    "aten.native_layer_norm_backward.default": _contiguous(3, 4),
    "aten.nll_loss2d_backward.default": _contiguous(1),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _dense_rows(0, 1, 2),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _dense_rows(0, 1, 2, 3, 4),
}
