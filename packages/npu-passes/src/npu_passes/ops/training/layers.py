"""``npu::linear``, ``npu::relu`` and ``npu::mse_grad``, each one node of a graph, also in backward passes."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_passes import _torch
from npu_passes.errors import PassError
from npu_passes.ops.registration import LIBRARY, register


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``input @ weight.T + bias``, [*, out]."""
    return F.linear(input, weight, bias)


def relu(input: Tensor) -> Tensor:
    """Return ``max(input, 0)``; NaN stays NaN."""
    return torch.relu(input)


def relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Return 0 where ``output``, the result of relu, is at most 0, and ``grad`` elsewhere."""
    result: Tensor = torch.ops.aten.threshold_backward(grad, output, 0)
    return result


def mse_grad(prediction: Tensor, target: Tensor, scale: float | None = None) -> Tensor:
    """Return the gradient of the mean squared error: ``scale * (prediction - target)``.

    Raises:
        PassError: The shapes differ.
    """
    if prediction.shape != target.shape:
        raise PassError(
            f"npu::mse_grad compares a prediction of shape {list(prediction.shape)} with a target of shape "
            f"{list(target.shape)}",
            fix="give both the same shape: a mean over broadcast elements is rarely meant",
        )
    return (prediction - target) * _scale(prediction, scale)


def _scale(prediction: Tensor, scale: float | None) -> float:
    """Return the factor of `mse_grad`; NaN, as in PyTorch, for the mean of no elements."""
    if scale is not None:
        return scale
    return 2 / prediction.numel() if prediction.numel() else math.nan


def _save_linear(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:  # noqa: ARG001
    input, weight, bias = inputs
    needs_input, needs_weight = ctx.needs_input_grad[:2]
    ctx.save_for_backward(input if needs_weight else None, weight if needs_input else None)
    ctx.input_shape = input.shape
    ctx.has_bias = bias is not None


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    input, weight = ctx.saved_tensors
    needs_input, needs_weight = ctx.needs_input_grad[:2]
    rows = _rows(grad)
    input_grad = weight_grad = None
    if needs_input:
        product = rows @ weight
        input_grad = product if len(ctx.input_shape) == 2 else product.reshape(ctx.input_shape)
    if needs_weight:
        weight_grad = rows.t() @ _rows(input)
    bias_grad = rows.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
    return input_grad, weight_grad, bias_grad


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


def _save_relu(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(output)


def _relu_gradient(ctx: Any, grad: Tensor) -> Tensor:
    (output,) = ctx.saved_tensors
    result: Tensor = torch.ops.npu.relu_backward(grad, output)
    return result


def _save_relu_backward(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(inputs[1])


def _relu_second_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (output,) = ctx.saved_tensors
    return torch.ops.npu.relu_backward(grad, output), None


def _save_mse_grad(ctx: Any, inputs: tuple[Tensor, Tensor, float | None], output: Tensor) -> None:  # noqa: ARG001
    prediction, _, scale = inputs
    ctx.scale = _scale(prediction, scale)


def _mse_second_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    needs_prediction, needs_target = ctx.needs_input_grad[:2]
    scaled = grad * ctx.scale
    return scaled if needs_prediction else None, -scaled if needs_target else None, None


register("linear", "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", linear)
register("relu", "(Tensor input) -> Tensor", relu)
register("relu_backward", "(Tensor grad, Tensor output) -> Tensor", relu_backward)
register("mse_grad", "(Tensor prediction, Tensor target, float? scale=None) -> Tensor", mse_grad)
for _name, _backward, _save in (
    ("linear", _linear_backward, _save_linear),
    ("relu", _relu_gradient, _save_relu),
    ("relu_backward", _relu_second_gradient, _save_relu_backward),
    ("mse_grad", _mse_second_gradient, _save_mse_grad),
):
    torch.library.register_autograd(f"npu::{_name}", _backward, setup_context=_save, lib=LIBRARY)
_torch.register_autocast(LIBRARY, "linear")
