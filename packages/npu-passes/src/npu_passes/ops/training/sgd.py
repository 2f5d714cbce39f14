"""``npu::sgd_step``, a step of SGD on lists of tensors, and its in-place form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim.sgd import sgd

from npu_passes import _torch
from npu_passes.ops.training.optimizer_checks import require_count, require_disjoint, require_matching_lists
from npu_passes.ops.training.optimizer_lists import Group, groups_of
from npu_passes.ops.training.registration import register_in_place, register_without_gradient

Tensors: TypeAlias = "list[Tensor]"

_OP = "npu::sgd_step"
_FOREACH: Callable[..., None] = sgd


def sgd_step_(
    params: Tensors, grads: Tensors, momentum_buffers: Tensors, *, momentum: float, **numbers: Any
) -> None:
    """Take a step of SGD in place, without a check for overlapping tensors."""
    _require_lists(params, grads, momentum_buffers)
    _require_momentum(params, momentum_buffers, momentum)
    for group in groups_of((params, grads, momentum_buffers), []):
        _step_group(group, momentum=momentum, **numbers)


def bind_sgd_step(params: Tensors, grads: Tensors, momentum_buffers: Tensors) -> Callable[..., None]:
    """Return a function of the numbers, by keyword, that takes a step of SGD in place on these tensors.

    Args:
        params: As for ``npu::sgd_step``. The tensors must keep their memory.
        grads: Likewise.
        momentum_buffers: Likewise.

    Raises:
        PassError: The lists do not match, or a tensor that is written shares memory with another one.
    """
    _require_lists(params, grads, momentum_buffers)
    _require_disjoint(params, grads, momentum_buffers)
    groups = groups_of((params, grads, momentum_buffers), [])
    if len(groups) == 1 and groups[0].is_plain and _has_fused_kernel(groups[0]):
        columns = groups[0].columns

        def kernel(*, momentum: float, **numbers: Any) -> None:
            _require_momentum(params, momentum_buffers, momentum)
            _torch.fused_sgd_(*columns, momentum=momentum, is_first_step=False, **numbers)

        return kernel

    def step(*, momentum: float, **numbers: Any) -> None:
        _require_momentum(params, momentum_buffers, momentum)
        for group in groups:
            _step_group(group, momentum=momentum, **numbers)

    return step


def _step_group(group: Group, **numbers: Any) -> None:
    """Take the step of one group."""
    group.load()
    params, grads, buffers = group.columns
    if _has_fused_kernel(group):
        _torch.fused_sgd_(params, grads, buffers, is_first_step=False, **numbers)
    else:
        plain = {**numbers, "lr": float(numbers["lr"])}  # foreach kernels take no tensor
        _FOREACH(params, grads, buffers or [None] * len(params), foreach=True, **plain)
    group.store()


def _has_fused_kernel(group: Group) -> bool:
    """Return whether to use the fused kernel: on CPU, it skips 16-bit parameters (pytorch issue 191763)."""
    param = group.columns[0][0]
    return group.is_on_fused_device and (param.device.type != "cpu" or param.dtype.itemsize > 2)


def sgd_step(
    params: Tensors, grads: Tensors, momentum_buffers: Tensors, **numbers: Any
) -> tuple[Tensors, Tensors]:
    """Return new parameters and momentum buffers after a step of SGD."""
    results = [item.clone() for item in params], [item.clone() for item in momentum_buffers]
    sgd_step_(results[0], grads, results[1], **numbers)
    return results


def _fake(
    params: Tensors, _grads: Tensors, momentum_buffers: Tensors, **_numbers: Any
) -> tuple[Tensors, Tensors]:
    return [torch.empty_like(item) for item in params], [torch.empty_like(item) for item in momentum_buffers]


def _checked_step_(params: Tensors, grads: Tensors, momentum_buffers: Tensors, **numbers: Any) -> None:
    _require_lists(params, grads, momentum_buffers)
    _require_momentum(params, momentum_buffers, numbers["momentum"])
    _require_disjoint(params, grads, momentum_buffers)
    for group in groups_of((params, grads, momentum_buffers), []):
        _step_group(group, **numbers)
    # The fused kernel does not increment versions for autograd (torch 2.13).
    increment_version([*params, *momentum_buffers])


def _require_lists(params: Tensors, grads: Tensors, momentum_buffers: Tensors) -> None:
    named: dict[str, Sequence[Tensor]] = {"params": params, "grads": grads}
    if momentum_buffers:
        named["momentum_buffers"] = momentum_buffers
    require_matching_lists(_OP, named)


def _require_momentum(params: Tensors, momentum_buffers: Tensors, momentum: float) -> None:
    if params:
        require_count(
            _OP, "momentum_buffers", momentum_buffers, given=momentum != 0, reason=f"momentum is {momentum}"
        )


def _require_disjoint(params: Tensors, grads: Tensors, momentum_buffers: Tensors) -> None:
    require_disjoint(_OP, {"params": params, "momentum_buffers": momentum_buffers}, {"grads": grads})


_NUMBERS = "float momentum, float dampening, float weight_decay, bool nesterov, bool maximize)"
for _overload, _lr in (("", "float lr"), (".tensor_lr", "Tensor lr")):
    register_without_gradient(
        f"sgd_step{_overload}",
        f"(Tensor[] params, Tensor[] grads, Tensor[] momentum_buffers, *, {_lr}, {_NUMBERS} "
        "-> (Tensor[], Tensor[])",
        sgd_step,
        _fake,
    )
    register_in_place(
        f"sgd_step_{_overload}",
        f"(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, *, {_lr}, {_NUMBERS} -> ()",
        _checked_step_,
        torch.ops.npu.sgd_step,
        lambda params, _grads, momentum_buffers, **_numbers: [*params, *momentum_buffers],
    )
