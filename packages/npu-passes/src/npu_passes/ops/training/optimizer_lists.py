"""The lists of tensors that an optimizer works on, arranged as PyTorch's fused kernels want them.

A fused kernel takes tensors of one device and dtype and walks through the memory of the tensors of a parameter side by
side. The kernels of the CPU do not look whether these are laid out alike (torch 2.13) and mix up elements where not; a
gradient often is not, such as the transpose of a product. So what does not fit is copied.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor

from npu_passes import _torch

_FACTS = attrgetter("dtype", "device")
FUSED_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters of one device and dtype, and what belongs to them, for one call of a kernel.

    Attributes:
        columns: Parameters, gradients, and the states: a list each, one tensor per parameter or none.
        steps: Counters of steps; none where the optimizer has none.
        loaded: Pairs of a copy among the columns and what it is a copy of.
        stored: Pairs of what is written to and its copy among the columns.
    """

    columns: tuple[list[Tensor], ...]
    steps: list[Tensor]
    loaded: list[tuple[Tensor, Tensor]]
    stored: list[tuple[Tensor, Tensor]]

    @property
    def is_on_fused_device(self) -> bool:
        return self.columns[0][0].device.type in FUSED_DEVICES

    @property
    def is_plain(self) -> bool:
        """Whether a fused kernel takes the tensors that were given."""
        return self.is_on_fused_device and not self.loaded

    def load(self) -> None:
        for copy, original in self.loaded:
            copy.copy_(original)

    def store(self) -> None:
        for original, copy in self.stored:
            original.copy_(copy)


def groups_of(columns: Sequence[list[Tensor]], steps: list[Tensor]) -> list[Group]:
    """Return the groups that lists of tensors make.

    Args:
        columns: Parameters, gradients, states: checked lists.
        steps: Counters of steps.
    """
    if not columns[0]:
        return []
    if _fit_one_call(columns):
        return [Group(tuple(map(list, columns)), list(steps), [], [])]
    groups: dict[tuple[torch.device, torch.dtype], Group] = {}
    used = [column for column in columns if column]
    for index, given in enumerate(zip(*used, strict=True)):
        row = [torch.view_as_real(item) for item in given] if given[0].is_complex() else given
        fitting = _fitting(row)
        key = (fitting[0].device, fitting[0].dtype)
        group = groups.setdefault(key, Group(tuple([] for _ in columns), [], [], []))
        places = iter(fitting)
        for column, kept in zip(columns, group.columns, strict=True):
            kept.extend([next(places)] if column else [])
        group.steps.extend(steps[index : index + 1])
        changed = [(copy, item) for copy, item in zip(fitting, row, strict=True) if copy is not item]
        group.loaded.extend(changed)
        group.stored.extend((item, copy) for copy, item in changed if item is not row[1])
    return list(groups.values())


def _fit_one_call(columns: Sequence[list[Tensor]]) -> bool:
    """Return whether a kernel can take these lists as they are; simple cases only."""
    param = columns[0][0]
    return not param.is_complex() and all(
        all(map(Tensor.is_contiguous, column)) and set(map(_FACTS, column)) <= {_FACTS(param)}
        for column in columns
    )


def _fitting(row: Sequence[Tensor]) -> list[Tensor]:
    """Return a parameter and its tensors in one dtype and memory layout: themselves, or memory for copies of them."""
    dtype = functools.reduce(torch.promote_types, [item.dtype for item in row])
    model = row[0] if _torch.is_dense(row[0]) else torch.empty_like(row[0])
    return [
        item
        if item.dtype == dtype and item.stride() == model.stride() and _torch.is_dense(item)
        else torch.empty_like(model, dtype=dtype)
        for item in row
    ]
