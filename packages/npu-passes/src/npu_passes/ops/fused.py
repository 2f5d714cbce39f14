"""Fused operators, for layers and for gradients of training steps: a backend can run each as one kernel.

They are composed of PyTorch's own operators (``CompositeImplicitAutograd``), for gradients the very ones
that PyTorch's own gradients call. So they run on every device with bitwise equal results, are
differentiated and counted as these are, and can be decomposed again. A backend that has its own kernel
registers it with ``torch.library.impl``. Importing this module registers them; the plugin ``npu-passes``
does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.registration import register_composite

LINEAR_ACTIVATION = "npu.linear_activation.default"
ADD_LAYER_NORM = "npu.add_layer_norm.default"
ADD_RMS_NORM = "npu.add_rms_norm.default"
LINEAR_BACKWARD = "npu.linear_backward.default"
LINEAR_ACTIVATION_BACKWARD = "npu.linear_activation_backward.default"
MSE_LOSS_WITH_GRAD = "npu.mse_loss_with_grad.default"
CROSS_ENTROPY_WITH_GRAD = "npu.cross_entropy_with_grad.default"


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "gelu": F.gelu,
        "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "mish": F.mish,
        "relu": F.relu,
        "relu6": F.relu6,
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "tanh": torch.tanh,
    }
)


@register_composite("(Tensor input, Tensor weight, Tensor? bias, str activation) -> Tensor")
def linear_activation(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return ``activation(linear(input, weight, bias))``.

    Args:
        input: [*, in].
        weight: [out, in].
        bias: [out].
        activation: One of `ACTIVATIONS`.

    Raises:
        PassError: The activation is unknown.
    """
    if activation not in ACTIVATIONS:
        raise PassError(
            f"npu::linear_activation has no activation {activation!r}", fix=f"it has {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[activation](F.linear(input, weight, bias))


@register_composite(
    "(Tensor input, Tensor residual, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor norm, Tensor sum)"
)
def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return the layer norm of ``input + residual``, and that sum."""
    total = input + residual
    return F.layer_norm(total, list(normalized_shape), weight, bias, eps), total


@register_composite(
    "(Tensor input, Tensor residual, SymInt[] normalized_shape, Tensor? weight, float? eps)"
    " -> (Tensor norm, Tensor sum)"
)
def add_rms_norm(
    input: Tensor, residual: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """Return the RMS norm of ``input + residual``, and that sum."""
    total = input + residual
    return F.rms_norm(total, list(normalized_shape), weight, eps), total


Gradients = tuple["Tensor | None", "Tensor | None", "Tensor | None"]

_aten = torch.ops.aten


# The second argument is the output of the activation for relu, sigmoid and tanh, its input for gelu and silu.
ACTIVATION_GRADIENTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
        "gelu": _aten.gelu_backward.default,
        "gelu_tanh": functools.partial(_aten.gelu_backward.default, approximate="tanh"),
        "relu": lambda grad, output: _aten.threshold_backward.default(grad, output, 0),
        "sigmoid": _aten.sigmoid_backward.default,
        "silu": _aten.silu_backward.default,
        "tanh": _aten.tanh_backward.default,
    }
)


@register_composite(
    "(Tensor grad, Tensor input, Tensor? weight, bool[3] mask)"
    " -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)"
)
def linear_backward(grad: Tensor, input: Tensor, weight: Tensor | None, mask: Sequence[bool]) -> Gradients:
    """Return the gradients of ``linear(input, weight, bias)`` for its input, weight and bias.

    Args:
        grad: [rows, out].
        input: [rows, in].
        weight: [out, in]; read only for the gradient of the input.
        mask: The gradients to compute, in this order; the others are None.

    Raises:
        PassError: The gradient of the input is requested without a weight.
    """
    if mask[0] and weight is None:
        raise PassError(
            "npu::linear_backward computes grad_input from the weight, and there is none",
            fix="pass the weight, or mask[0]=False",
        )
    return (
        torch.mm(grad, weight) if mask[0] and weight is not None else None,
        torch.mm(grad.t(), input) if mask[1] else None,
        torch.sum(grad, [0]) if mask[2] else None,
    )


@register_composite(
    "(Tensor grad, Tensor saved, Tensor input, Tensor? weight, bool[3] mask, str activation)"
    " -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)"
)
def linear_activation_backward(
    grad: Tensor,
    saved: Tensor,
    input: Tensor,
    weight: Tensor | None,
    mask: Sequence[bool],
    activation: str,
) -> Gradients:
    """Return the gradients of ``activation(linear(input, weight, bias))`` for input, weight and bias.

    ``saved``, [rows, out], is the output of the activation or its input: see `ACTIVATION_GRADIENTS`. The
    other arguments are those of `linear_backward`.

    Raises:
        PassError: The activation is unknown; or as `linear_backward` does.
    """
    if activation not in ACTIVATION_GRADIENTS:
        raise PassError(
            f"npu::linear_activation_backward has no activation {activation!r}",
            fix=f"it has {', '.join(ACTIVATION_GRADIENTS)}",
        )
    return linear_backward(ACTIVATION_GRADIENTS[activation](grad, saved), input, weight, mask)


@register_composite(
    "(Tensor prediction, Tensor target, int reduction=1, float scale=1.0) -> (Tensor loss, Tensor grad)"
)
def mse_loss_with_grad(
    prediction: Tensor, target: Tensor, reduction: int = 1, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the mean squared error, and its gradient for ``prediction``.

    Args:
        prediction: Of any shape.
        target: Of the same shape.
        reduction: 1 for the mean, 2 for the sum.
        scale: The gradient for the loss itself.
    """
    loss = _aten.mse_loss.default(prediction, target, reduction)
    return loss, _aten.mse_loss_backward.default(torch.full_like(loss, scale), prediction, target, reduction)


@register_composite(
    "(Tensor logits, Tensor target, int reduction=1, SymInt ignore_index=-100, float scale=1.0)"
    " -> (Tensor loss, Tensor grad)"
)
def cross_entropy_with_grad(
    logits: Tensor, target: Tensor, reduction: int = 1, ignore_index: int = -100, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of logits and classes, and its gradient for the logits.

    The gradient is ``scale * (softmax(logits) - one_hot(target)) / rows``; it is 0 in ignored rows,
    which ``rows`` does not count.

    Args:
        logits: [rows, classes].
        target: [rows], int64.
        reduction: 1 for the mean, 2 for the sum.
        ignore_index: The class whose rows are ignored.
        scale: The gradient for the loss itself.
    """
    logs = _aten._log_softmax.default(logits, 1, False)
    loss, count = _aten.nll_loss_forward.default(logs, target, None, reduction, ignore_index)
    grad = _aten.nll_loss_backward.default(
        torch.full_like(loss, scale), logs, target, None, reduction, ignore_index, count
    )
    return loss, _aten._log_softmax_backward_data.default(grad, logs, 1, logits.dtype)
