"""A case of the benchmark of CUDA kernels, and the tensors that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Variant = tuple[int, torch.dtype]

f32, bf16 = torch.float32, torch.bfloat16
BIG, SMALL = 1 << 26, 1 << 14  # elements: more than the cache of any GPU; as few as a launch takes
SIZES: tuple[Variant, ...] = ((BIG, f32), (BIG, bf16), (SMALL, f32))
FLOAT32: tuple[Variant, ...] = ((BIG, f32), (SMALL, f32))
# Of ops whose kernels need workspace, which is limited.
WITH_MIDDLE: tuple[Variant, ...] = ((BIG, f32), (1 << 20, f32), (SMALL, f32))
TENSORS = 64  # of a list


@dataclass(frozen=True, slots=True)
class Data:
    """Makes random tensors of about ``count`` elements."""

    count: int
    dtype: torch.dtype
    device: torch.device

    @property
    def width(self) -> int:
        return 1024

    @property
    def height(self) -> int:
        return self.count // self.width

    def normal(self, *shape: int) -> Tensor:
        """Return normal numbers; their mean is not 0, so that sums are not, either."""
        return torch.randn(shape or (self.count,), device=self.device).add_(0.25).to(self.dtype)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, device=self.device).add_(0.5).to(self.dtype)

    def integers(self, limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, device=self.device)

    def rows(self) -> Tensor:
        return self.normal(self.height, self.width)

    def row(self) -> Tensor:
        return self.normal(self.width)

    def images(self, channels: int = 16, side: int = 32) -> Tensor:
        return self.normal(self.count // (channels * side * side), channels, side, side)

    def table(self) -> tuple[Tensor, Tensor]:
        """Return rows, and numbers of as many rows, with repetitions."""
        return self.rows(), self.integers(self.height, self.height)

    def lists(self, kinds: int) -> tuple[Tensor, ...]:
        """Return lists of positive tensors, one after the other."""
        return tuple(self.uniform(self.count // TENSORS) for _ in range(kinds * TENSORS))


@dataclass(frozen=True, slots=True)
class Case:
    """A computation.

    Attributes:
        title: For the table.
        function: Of tensors alone; returns one or several.
        inputs: Makes them.
        variants: Numbers of elements (of products: the size of a side), and dtypes.
        peer: What PyTorch does in its place, where that is more than it has to do: in place, for example.
        kind: The native op, where no op of a graph leads to it.
        attrs: Of the native op: its schema, and fields.
        is_random: Whether results have the same mean only.
    """

    title: str
    function: Callable[..., Any]
    inputs: Callable[[Data], tuple[Tensor, ...]]
    variants: tuple[Variant, ...] = SIZES
    peer: Callable[..., Any] | None = None
    kind: str = ""
    attrs: tuple[str, Mapping[str, float]] = field(default=("", {}))
    is_random: bool = False
