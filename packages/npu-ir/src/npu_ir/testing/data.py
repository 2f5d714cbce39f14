"""Inputs for contract tests: ordinary and special numbers, anywhere in memory."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from npu_ir.core.storage import element_span
from npu_ir.core.types import TensorType, Type

_CPU = torch.device("cpu")
_NUMBERS = {"int": 2, "float": 1.5, "bool": True, "none": None}


class Content(str, enum.Enum):
    """The content of floating-point inputs; integers are 0 and 1, which are valid indices."""

    ORDINARY = "ordinary numbers"
    ZEROS = "zeros of both signs"
    INFINITIES = "infinities"
    NANS = "NaN"


_SPECIAL = {
    Content.ZEROS: (0.0, -0.0),
    Content.INFINITIES: (float("inf"), float("-inf")),
    Content.NANS: (float("nan"),),
}


def make_inputs(
    types: Sequence[Type],
    device: torch.device = _CPU,
    *,
    content: Content = Content.ORDINARY,
    seed: int = 0,
    offset: int = 0,
) -> list[Any]:
    """Return inputs of these types, deterministic for a seed.

    Args:
        types: Types without symbols.
        device: The device of tensors.
        content: The content of floating-point tensors.
        seed: The seed of the random numbers.
        offset: The storage offset of tensors, in elements; if not 0, axes of size 1 have odd strides, too.
    """
    generator = torch.Generator().manual_seed(seed)
    return [
        _tensor(type, device, content, generator, offset)
        if isinstance(type, TensorType)
        else _NUMBERS[type.kind]
        for type in types
    ]


def _tensor(
    type: TensorType, device: torch.device, content: Content, generator: torch.Generator, offset: int
) -> torch.Tensor:
    steps = [
        13 if offset and size == 1 else step
        for size, step in zip(type.static_shape, type.static_strides, strict=True)
    ]
    count = element_span(type.static_shape, steps)
    row = _random_values(count + 2 * offset, type.dtype, content, generator)
    return row.to(device).as_strided(type.static_shape, steps, offset)


def _random_values(
    count: int, dtype: torch.dtype, content: Content, generator: torch.Generator
) -> torch.Tensor:
    if not (dtype.is_floating_point or dtype.is_complex):
        high = 1 if content is Content.ZEROS else 2
        return torch.randint(high, (count,), generator=generator).to(dtype)
    wide = torch.complex64 if dtype.is_complex else torch.float32
    row = torch.randn(count, dtype=wide, generator=generator)
    special = _SPECIAL.get(content, ())
    step = (
        1 if content is Content.ZEROS else 7
    )  # ordinary numbers in between, so that not all results are NaN
    for start, number in zip(itertools.count(0, step), special, strict=False):
        row[start :: step * len(special)] = number
    return row.to(dtype)
