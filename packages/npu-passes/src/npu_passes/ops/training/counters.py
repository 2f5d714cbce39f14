"""``npu::step_inc``, ``npu::bias_corr`` and ``npu::grad_zero``, and their in-place forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.registration import register_in_place, register_without_gradient

# Other dtypes count to a few hundred or thousand, and then silently stop or wrap around.
COUNTS = (torch.float32, torch.float64, torch.int32, torch.int64)


def step_inc(step: Tensor) -> Tensor:
    """Return ``step + 1``; its dtype has to count far enough."""
    _require_counter("npu::step_inc", step)
    return step + 1


def step_inc_(step: Tensor) -> None:
    _require_counter("npu::step_inc_", step)
    step.add_(1)


def bias_corr(
    step: Tensor, beta1: float, beta2: float, *, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return the bias corrections of Adam's moments, ``1 / (1 - beta ** step)`` for each beta.

    They are multipliers of the shape of ``step``, computed in float64. The default of ``dtype`` is that of
    the step if it is a floating-point dtype, else float32.

    Source: Kingma and Ba, Adam, arXiv:1412.6980, section 3.
    """
    _require_counter("npu::bias_corr", step)
    exact = step.to(torch.float64)
    result_dtype = dtype or (step.dtype if step.dtype.is_floating_point else torch.float32)
    return (1 / (1 - beta1**exact)).to(result_dtype), (1 / (1 - beta2**exact)).to(result_dtype)


def bias_corr_out(step: Tensor, beta1: float, beta2: float, *, bc1_inv: Tensor, bc2_inv: Tensor) -> None:
    first, second = _compute_for_outputs(bias_corr, step, beta1, beta2, bc1_inv, bc2_inv)
    bc1_inv.copy_(first)
    bc2_inv.copy_(second)


def grad_zero(grad: Tensor) -> Tensor:
    """Return zeros like ``grad``."""
    return torch.zeros_like(grad)


def grad_zero_(grad: Tensor) -> None:
    grad.zero_()


def _compute_for_outputs(
    function: Callable[..., Any], step: Tensor, beta1: float, beta2: float, bc1_inv: Tensor, bc2_inv: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the multipliers in the dtypes and shapes of the output tensors.

    Raises:
        PassError: An output is not floating-point, or has another number of elements than ``step``.
    """
    for name, item in (("bc1_inv", bc1_inv), ("bc2_inv", bc2_inv)):
        if not item.dtype.is_floating_point or item.numel() != step.numel():
            raise PassError(
                f"npu::bias_corr_out: {name} is a {item.dtype} of shape {list(item.shape)}, "
                f"for a step of shape {list(step.shape)}",
                fix=f"make it floating-point, of the shape of the step: torch.empty({list(step.shape)})",
            )
    wider = torch.promote_types(bc1_inv.dtype, bc2_inv.dtype)
    first, second = function(step, beta1, beta2, dtype=wider)
    return _reshape_like(first.to(bc1_inv.dtype), bc1_inv), _reshape_like(second.to(bc2_inv.dtype), bc2_inv)


def _reshape_like(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.shape == like.shape else tensor.reshape(like.shape)


def _correct_functionally(
    step: Tensor, beta1: float, beta2: float, *, bc1_inv: Tensor, bc2_inv: Tensor
) -> tuple[Tensor, Tensor]:
    return _compute_for_outputs(torch.ops.npu.bias_corr, step, beta1, beta2, bc1_inv, bc2_inv)


def _require_counter(op: str, step: Tensor) -> None:
    if step.dtype not in COUNTS:
        raise PassError(
            f"{op}: the step is a {step.dtype}, which cannot count the steps of a training",
            fix=f"use a counter of {', '.join(map(str, COUNTS))}",
        )


register_without_gradient("step_inc", "(Tensor step) -> Tensor", step_inc)
register_without_gradient("grad_zero", "(Tensor grad) -> Tensor", grad_zero)
register_without_gradient(
    "bias_corr",
    "(Tensor step, float beta1, float beta2, *, ScalarType? dtype=None) -> (Tensor bc1_inv, Tensor bc2_inv)",
    bias_corr,
)
register_in_place(
    "step_inc_",
    "(Tensor(a!) step) -> ()",
    step_inc_,
    torch.ops.npu.step_inc,
    lambda step: [step],
)
register_in_place(
    "grad_zero_",
    "(Tensor(a!) grad) -> ()",
    grad_zero_,
    torch.ops.npu.grad_zero,
    lambda grad: [grad],
)
register_in_place(
    "bias_corr_out",
    "(Tensor step, float beta1, float beta2, *, Tensor(a!) bc1_inv, Tensor(b!) bc2_inv) -> ()",
    bias_corr_out,
    _correct_functionally,
    lambda _step, _beta1, _beta2, *, bc1_inv, bc2_inv: [bc1_inv, bc2_inv],
)
