"""Layers and the gradient of a loss, each one op of the namespace ``npu``."""

from __future__ import annotations

import torch
from torch import Tensor

import npu_passes.ops.fused
import npu_passes.ops.training  # noqa: F401 - both register their ops


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``input @ weight.T + bias``, differentiable as `torch.nn.functional.linear` is.

    Args:
        input: ``[*, in]``, floating point.
        weight: [out, in], of the same dtype; autocast casts as for ``torch.nn.functional.linear``.
        bias: [out].

    Returns:
        ``[*, out]``.
    """
    result: Tensor = torch.ops.npu.linear(input, weight, bias)
    return result


def linear_activation(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return ``activation(linear(input, weight, bias))``.

    Args:
        input: ``[*, in]``, floating point.
        weight: [out, in].
        bias: [out].
        activation: ``"relu"``, ``"gelu"``, ... (`npu_passes.ops.fused.ACTIVATIONS`).

    Raises:
        PassError: The activation is unknown.
    """
    result: Tensor = torch.ops.npu.linear_activation(input, weight, bias, activation)
    return result


def relu(input: Tensor) -> Tensor:
    """Return ``max(input, 0)``; NaN stays NaN. Its derivative is `relu_backward`."""
    result: Tensor = torch.ops.npu.relu(input)
    return result


def relu_backward(grad: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of the input of relu: 0 where ``output <= 0``, else ``grad``.

    Args:
        grad: The gradient of the output of relu.
        output: The output of relu; its input gives the same result.
    """
    result: Tensor = torch.ops.npu.relu_backward(grad, output)
    return result


def mse_grad(prediction: Tensor, target: Tensor, scale: float | None = None) -> Tensor:
    """Return the gradient of the mean squared error in the prediction: ``scale * (prediction - target)``.

    Args:
        prediction: Any shape, floating point.
        target: Of the same shape.
        scale: ``2 / numel`` if None, for a loss that is a mean; 2 is for a sum.

    Raises:
        PassError: The shapes differ.
    """
    result: Tensor = torch.ops.npu.mse_grad(prediction, target, scale)
    return result


def grad_zero_(grad: Tensor) -> None:
    """Set a gradient to zeros in place."""
    torch.ops.npu.grad_zero_(grad)
