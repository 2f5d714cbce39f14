"""``npu::adam_step``, a step of Adam or AdamW on lists of tensors, and its in-place form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim.adam import adam

from npu_passes import _torch
from npu_passes.ops.training.optimizer_checks import require_count, require_disjoint, require_matching_lists
from npu_passes.ops.training.optimizer_lists import Group, groups_of
from npu_passes.ops.training.registration import register_in_place, register_without_gradient
from npu_passes.ops.training.step_counters import bind_increment, increment

Tensors: TypeAlias = "list[Tensor]"

_OP = "npu::adam_step"
_FOREACH: Callable[..., None] = adam
_NAMES = ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "steps")


def adam_step_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    steps: Tensors,
    *,
    amsgrad: bool,
    **numbers: Any,
) -> None:
    """Take a step of Adam in place, without a check for overlapping tensors."""
    lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps)
    _require_lists(lists, amsgrad=amsgrad)
    _step_groups(lists, amsgrad=amsgrad, **numbers)


def bind_adam_step(*lists: Tensors) -> Callable[..., None]:
    """Return a function of the numbers, by keyword, that takes a step of Adam in place on these tensors.

    Args:
        lists: As for ``npu::adam_step``. The tensors must keep their memory.

    Raises:
        PassError: The lists do not match, or a tensor that is written shares memory with another one.
    """
    _require_lists(lists, amsgrad=bool(lists[4]))
    _require_disjoint(lists)
    groups = groups_of(lists[:5], lists[5])
    if len(groups) == 1 and groups[0].is_plain:
        return _bind_single_group(groups[0])

    def step(*, amsgrad: bool, **numbers: Any) -> None:
        _require_maxima(lists, amsgrad=amsgrad)
        for group in groups:
            _step_group(group, amsgrad=amsgrad, **numbers)

    return step


def _bind_single_group(group: Group) -> Callable[..., None]:
    """Return the step of a single group without copies, as two kernel calls."""
    count = bind_increment(group.steps)
    columns, steps = group.columns, group.steps

    def step(*, decoupled: bool, amsgrad: bool, **numbers: Any) -> None:
        _require_maxima(columns, amsgrad=amsgrad)
        count()
        (_torch.fused_adamw_ if decoupled else _torch.fused_adam_)(
            *columns, steps, amsgrad=amsgrad, **numbers
        )

    return step


def _step_groups(lists: Sequence[Tensors], **numbers: Any) -> None:
    for group in groups_of(lists[:5], lists[5]):
        _step_group(group, **numbers)


def _step_group(group: Group, *, decoupled: bool, **numbers: Any) -> None:
    """Take the step of one group."""
    group.load()
    if group.is_on_fused_device:
        increment(group.steps)
        kernel = _torch.fused_adamw_ if decoupled else _torch.fused_adam_
        kernel(*group.columns, group.steps, **numbers)
    else:
        plain = {**numbers, "lr": float(numbers["lr"])}  # foreach kernels take no tensor
        _FOREACH(*group.columns, group.steps, foreach=True, decoupled_weight_decay=decoupled, **plain)
    group.store()


def adam_step(*lists: Tensors, **numbers: Any) -> tuple[Tensors, Tensors, Tensors, Tensors, Tensors]:
    """Return new parameters, moments, maxima and counters after a step of Adam."""
    params, grads, *states = lists
    new_params, *new_states = ([item.clone() for item in column] for column in (params, *states))
    adam_step_(new_params, grads, *new_states, **numbers)
    return (new_params, *new_states)  # type: ignore[return-value]


def _fake(params: Tensors, _grads: Tensors, *states: Tensors, **_numbers: Any) -> tuple[Tensors, ...]:
    return tuple([torch.empty_like(item) for item in column] for column in (params, *states))


def _checked_step_(*lists: Tensors, amsgrad: bool, **numbers: Any) -> None:
    _require_lists(lists, amsgrad=amsgrad)
    _require_disjoint(lists)
    _step_groups(lists, amsgrad=amsgrad, **numbers)
    # The fused kernels do not increment versions for autograd (torch 2.13).
    increment_version(_written_tensors(*lists))


def _require_lists(lists: Sequence[Tensors], *, amsgrad: bool) -> None:
    _require_maxima(lists, amsgrad=amsgrad)
    named = dict(zip(_NAMES[:-1], lists, strict=False))
    if not amsgrad:
        del named["max_exp_avg_sqs"]
    require_matching_lists(_OP, named, lists[5])


def _require_maxima(lists: Sequence[Tensors], *, amsgrad: bool) -> None:
    if lists[0]:
        require_count(_OP, _NAMES[4], lists[4], given=amsgrad, reason=f"amsgrad is {amsgrad}")


def _require_disjoint(lists: Sequence[Tensors]) -> None:
    named = dict(zip(_NAMES, lists, strict=True))
    grads = named.pop("grads")
    require_disjoint(_OP, named, {"grads": grads})


def _written_tensors(params: Tensors, _grads: Tensors, *states: Tensors, **_numbers: Any) -> Tensors:
    return [item for column in (params, *states) for item in column]


_NUMBERS = (
    "float beta1, float beta2, float eps, float weight_decay, bool decoupled, bool amsgrad, bool maximize)"
)
for _overload, _lr in (("", "float lr"), (".tensor_lr", "Tensor lr")):
    register_without_gradient(
        f"adam_step{_overload}",
        "(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, "
        f"Tensor[] max_exp_avg_sqs, Tensor[] steps, *, {_lr}, {_NUMBERS} "
        "-> (Tensor[], Tensor[], Tensor[], Tensor[], Tensor[])",
        adam_step,
        _fake,
    )
    register_in_place(
        f"adam_step_{_overload}",
        "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
        f"Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] steps, *, {_lr}, {_NUMBERS} -> ()",
        _checked_step_,
        torch.ops.npu.adam_step,
        _written_tensors,
    )
