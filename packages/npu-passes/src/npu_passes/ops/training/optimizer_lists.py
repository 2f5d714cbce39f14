"""Lists of tensors of an optimizer, grouped for PyTorch's fused kernels.

A fused kernel takes tensors of one device and dtype and iterates over the memory of a parameter's tensors
in parallel. The CPU kernels do not check that these have the same strides (torch 2.13), and mix up elements
if they do not; a gradient often has others, such as the transpose of a product. So tensors that do not
match are copied.
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
    """Parameters of one device and dtype, with their gradients and states, for one call of a kernel.

    Attributes:
        columns: Parameters, gradients, and the states: a list each, one tensor per parameter or none.
        steps: Counters of steps; empty if the optimizer has none.
        loaded: Pairs of a copy among the columns and its original, to copy before the step.
        stored: Pairs of an original that is written and its copy among the columns, to copy after the step.
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
        """True if a fused kernel takes the original tensors, without copies."""
        return self.is_on_fused_device and not self.loaded

    def load(self) -> None:
        for copy, original in self.loaded:
            copy.copy_(original)

    def store(self) -> None:
        for original, copy in self.stored:
            original.copy_(copy)


def groups_of(columns: Sequence[list[Tensor]], steps: list[Tensor]) -> list[Group]:
    """Return lists of tensors split into groups by device and dtype."""
    if not columns[0]:
        return []
    if _fits_one_call(columns):
        return [Group(tuple(map(list, columns)), list(steps), [], [])]
    groups: dict[tuple[torch.device, torch.dtype], Group] = {}
    used = [column for column in columns if column]
    for index, tensors in enumerate(zip(*used, strict=True)):
        row = [torch.view_as_real(item) for item in tensors] if tensors[0].is_complex() else tensors
        fitting = _match_layouts(row)
        key = (fitting[0].device, fitting[0].dtype)
        group = groups.setdefault(key, Group(tuple([] for _ in columns), [], [], []))
        places = iter(fitting)
        for column, kept in zip(columns, group.columns, strict=True):
            kept.extend([next(places)] if column else [])
        group.steps.extend(steps[index : index + 1])
        changed = [(copy, item) for copy, item in zip(fitting, row, strict=True) if copy is not item]
        group.loaded.extend(changed)
        # row[1] is the gradient, which is only read.
        group.stored.extend((item, copy) for copy, item in changed if item is not row[1])
    return list(groups.values())


def _fits_one_call(columns: Sequence[list[Tensor]]) -> bool:
    """Return whether one kernel call can take these lists without copies; simple cases only."""
    param = columns[0][0]
    return not param.is_complex() and all(
        all(map(Tensor.is_contiguous, column)) and set(map(_FACTS, column)) <= {_FACTS(param)}
        for column in columns
    )


def _match_layouts(row: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of one dtype and layout for a row: its own, or uninitialized ones for copies."""
    dtype = functools.reduce(torch.promote_types, [item.dtype for item in row])
    model = row[0] if _torch.is_dense(row[0]) else torch.empty_like(row[0])
    return [
        item
        if item.dtype == dtype and item.stride() == model.stride() and _torch.is_dense(item)
        else torch.empty_like(model, dtype=dtype)
        for item in row
    ]
