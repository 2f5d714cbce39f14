"""Lists of tensors of an optimizer: validation, and groups for PyTorch's fused kernels.

A fused kernel takes tensors of one device and dtype and iterates over the memory of a parameter's tensors
in parallel. The CPU kernels do not check that these have the same strides (torch 2.13), and mix up elements
if they do not; a gradient often has others, such as the transpose of a product. So tensors that do not
match are copied.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import Tensor

from npu_ir.core.storage import address_range
from npu_passes import _torch
from npu_passes.errors import PassError

_FACTS = attrgetter("shape", "device", "layout", "dtype.is_floating_point", "dtype.is_complex")
_BYTES = attrgetter("nbytes")
_COUNTER_FACTS = attrgetter("ndim", "dtype", "device")
_COUNTS = (torch.float32, torch.float64)


def require_matching_lists(
    op: str, lists: Mapping[str, Sequence[Tensor]], steps: Sequence[Tensor] | None = None
) -> None:
    """Raise unless each list has, per parameter, one tensor of its shape, device, layout and kind of dtype.

    The parameters are the first list; ``steps`` are their counters, None for an optimizer without any.
    """
    (_, params), *others = lists.items()
    _require_inexact(op, params)
    # Whole lists are compared first, because this runs in each step: the loop below only finds the message.
    facts = list(map(_FACTS, params))
    for name, tensors in others:
        if list(map(_FACTS, tensors)) == facts:
            continue
        if len(tensors) != len(params):
            raise _length_error(op, len(params), name, len(tensors))
        for index, (param, tensor) in enumerate(zip(params, tensors, strict=True)):
            if tensor.shape != param.shape:
                raise PassError(
                    f"{op}: params[{index}] has shape {list(param.shape)}, "
                    f"{name}[{index}] has {list(tensor.shape)}",
                    fix="give the tensors of a parameter in the same order everywhere",
                )
            if tensor.device != param.device or tensor.layout != param.layout:
                raise PassError(
                    f"{op}: params[{index}] is {_kind(param)}, {name}[{index}] is {_kind(tensor)}",
                    fix="move them to the device of the parameter; "
                    "a sparse gradient can be made dense: grad.to_dense()",
                )
            if _FACTS(tensor) != _FACTS(param):
                raise PassError(
                    f"{op}: params[{index}] is a tensor of {param.dtype}, "
                    f"{name}[{index}] is one of {tensor.dtype}",
                    fix="give real tensors for a real parameter, complex ones for a complex parameter",
                )
    if steps is not None:
        _require_steps(op, params, steps)


def _require_inexact(op: str, params: Sequence[Tensor]) -> None:
    for index, param in enumerate(params):
        if not (param.dtype.is_floating_point or param.dtype.is_complex):
            raise PassError(
                f"{op}: params[{index}] is a tensor of {param.dtype}: "
                "a step would be rounded to whole numbers",
                fix="train floating-point or complex parameters",
            )


def _require_steps(op: str, params: Sequence[Tensor], steps: Sequence[Tensor]) -> None:
    if len(steps) != len(params):
        raise _length_error(op, len(params), "steps", len(steps))
    dtype = steps[0].dtype if steps else None
    if dtype in _COUNTS and list(map(_COUNTER_FACTS, steps)) == [
        (0, dtype, param.device) for param in params
    ]:
        return
    for index, (param, step) in enumerate(zip(params, steps, strict=True)):
        is_counter = step.dim() == 0 and step.dtype in _COUNTS and step.dtype == dtype
        if not is_counter or step.device != param.device:
            raise PassError(
                f"{op}: steps[{index}] is a {step.dtype} of shape {list(step.shape)} on {step.device}",
                fix=f"a counter is torch.zeros((), dtype=torch.float32, device={str(param.device)!r}): "
                "one for each parameter, all of one dtype",
            )


def _length_error(op: str, count: int, name: str, found: int) -> PassError:
    return PassError(f"{op}: {count} params, but {found} {name}", fix=f"give one of {name} per parameter")


def _kind(tensor: Tensor) -> str:
    return f"{tensor.layout} on {tensor.device}"


def optional_list_error(op: str, name: str, tensors: Sequence[Tensor], reason: str) -> PassError:
    """Return the error for an optional list of states that is given where it is not used, or the reverse."""
    fix = f"give an empty list of {name}" if tensors else f"give one of {name} per parameter"
    return PassError(f"{op}: {reason}, but {len(tensors)} {name} are given", fix=fix)


def require_disjoint(
    op: str, written: Mapping[str, Sequence[Tensor]], read: Mapping[str, Sequence[Tensor]]
) -> None:
    """Raise if a tensor shares memory with one that is written; those that are only read may."""
    if _are_clearly_disjoint(
        [tensor for tensors in (*written.values(), *read.values()) for tensor in tensors]
    ):
        return
    spans = sorted(
        (*address_range(tensor), is_written, name, index)
        for lists, is_written in ((written, True), (read, False))
        for name, tensors in lists.items()
        for index, tensor in enumerate(tensors)
    )
    # A sweep over the spans sorted by start; `reach` has the largest end so far of written and of read
    # tensors.
    reach = {True: (0, "", 0), False: (0, "", 0)}
    for start, end, is_written, name, index in spans:
        for before in (True, False) if is_written else (True,):
            until, other, other_index = reach[before]
            if start < until:
                raise PassError(
                    f"{op} writes to {(name if is_written else other)}, "
                    f"and {name}[{index}] shares memory with {other}[{other_index}]",
                    fix="clone() one of them: what is written must be in memory of its own",
                )
        reach[is_written] = max(reach[is_written], (end, name, index))


def _are_clearly_disjoint(tensors: Sequence[Tensor]) -> bool:
    """Return True only if no two tensors share memory; a fast test that may be False for disjoint ones."""
    if not all(map(Tensor.is_contiguous, tensors)):
        return False
    spans = sorted(zip(map(Tensor.data_ptr, tensors), map(_BYTES, tensors), strict=True))
    return all(start + size <= following for (start, size), (following, _) in itertools.pairwise(spans))


_KERNEL_FACTS = attrgetter("dtype", "device")
FUSED_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters of one device and dtype, with their gradients and states, for one call of a kernel."""

    # Parameters, gradients, and the states: a list each, one tensor per parameter or none.
    columns: tuple[list[Tensor], ...]
    steps: list[Tensor]  # counters of steps; empty if the optimizer has none
    # Pairs of a copy among the columns and its original, to copy before the step.
    loaded: list[tuple[Tensor, Tensor]]
    # Pairs of an original that is written and its copy among the columns, to copy after the step.
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
        all(map(Tensor.is_contiguous, column)) and set(map(_KERNEL_FACTS, column)) <= {_KERNEL_FACTS(param)}
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
