"""``npu::step_inc``, ``npu::bias_corr`` and ``npu::grad_zero``: what optimizers count with, and their in-place forms."""

from __future__ import annotations

import torch
from torch import Tensor

from npu_passes.training_ops.registering import register_in_place, register_without_gradient


def step_inc(step: Tensor) -> Tensor:
    """Return ``step + 1``."""
    return step + 1


def step_inc_(step: Tensor) -> None:
    step.add_(1)


def bias_corr(step: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Return what Adam's moments are multiplied by after ``step`` steps: ``1 / (1 - beta ** step)`` for each beta.

    Args:
        step: 0-d, floating point, at least 1: the counter after it was incremented.
        beta1: At least 0, below 1.
        beta2: Likewise.

    Returns:
        Multipliers, in the dtype of ``step``; computed in float64.

    Source: Kingma and Ba, Adam, arXiv:1412.6980, section 3.
    """
    exact = step.to(torch.float64)
    return (1 / (1 - beta1**exact)).to(step.dtype), (1 / (1 - beta2**exact)).to(step.dtype)


def bias_corr_out(step: Tensor, beta1: float, beta2: float, *, bc1_inv: Tensor, bc2_inv: Tensor) -> None:
    first, second = bias_corr(step, beta1, beta2)
    bc1_inv.copy_(first)
    bc2_inv.copy_(second)


def grad_zero(grad: Tensor) -> Tensor:
    """Return zeros like ``grad``."""
    return torch.zeros_like(grad)


def grad_zero_(grad: Tensor) -> None:
    grad.zero_()


def _correct_functionally(
    step: Tensor,
    beta1: float,
    beta2: float,
    *,
    bc1_inv: Tensor,  # noqa: ARG001 - the signature of the op
    bc2_inv: Tensor,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:
    results: tuple[Tensor, Tensor] = torch.ops.npu.bias_corr(step, beta1, beta2)
    return results


register_without_gradient("step_inc", "(Tensor step) -> Tensor", step_inc, torch.empty_like)
register_without_gradient("grad_zero", "(Tensor grad) -> Tensor", grad_zero, torch.empty_like)
register_without_gradient(
    "bias_corr",
    "(Tensor step, float beta1, float beta2) -> (Tensor bc1_inv, Tensor bc2_inv)",
    bias_corr,
    lambda step, *_betas: (torch.empty_like(step), torch.empty_like(step)),
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
