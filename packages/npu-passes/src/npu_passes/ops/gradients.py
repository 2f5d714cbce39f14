"""Fused operators for the gradients of training steps, each of which a backend can run as one kernel.

``npu::linear_backward``, ``npu::linear_activation_backward``, ``npu::mse_loss_with_grad`` and
``npu::cross_entropy_with_grad``. Like those of `npu_passes.ops.fused` they are composed of PyTorch's own
operators (``CompositeImplicitAutograd``), the very ones that PyTorch's own gradients call: results are
bitwise equal. Importing this module registers them; the plugin ``npu-passes`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.registration import register_composite

LINEAR_BACKWARD = "npu.linear_backward.default"
LINEAR_ACTIVATION_BACKWARD = "npu.linear_activation_backward.default"
MSE_LOSS_WITH_GRAD = "npu.mse_loss_with_grad.default"
CROSS_ENTROPY_WITH_GRAD = "npu.cross_entropy_with_grad.default"

Gradients = tuple["Tensor | None", "Tensor | None", "Tensor | None"]

_aten = torch.ops.aten


def _relu(grad: Tensor, output: Tensor) -> Tensor:
    return _aten.threshold_backward.default(grad, output, 0)  # type: ignore[no-any-return]


def _gelu_tanh(grad: Tensor, input: Tensor) -> Tensor:
    return _aten.gelu_backward.default(grad, input, approximate="tanh")  # type: ignore[no-any-return]


# The second argument is the output of the activation for relu, sigmoid and tanh, its input for gelu and silu.
ACTIVATION_GRADIENTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
        "gelu": _aten.gelu_backward.default,
        "gelu_tanh": _gelu_tanh,
        "relu": _relu,
        "sigmoid": _aten.sigmoid_backward.default,
        "silu": _aten.silu_backward.default,
        "tanh": _aten.tanh_backward.default,
    }
)

_SCHEMAS = {
    "linear_backward": "(Tensor grad, Tensor input, Tensor? weight, bool[3] mask) "
    "-> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
    "linear_activation_backward": "(Tensor grad, Tensor saved, Tensor input, Tensor? weight, bool[3] mask, "
    "str activation) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)",
    "mse_loss_with_grad": "(Tensor prediction, Tensor target, int reduction=1, float scale=1.0) "
    "-> (Tensor loss, Tensor grad)",
    "cross_entropy_with_grad": "(Tensor logits, Tensor target, int reduction=1, SymInt ignore_index=-100, "
    "float scale=1.0) -> (Tensor loss, Tensor grad)",
}


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
    return loss, _aten.mse_loss_backward.default(_full(loss, scale), prediction, target, reduction)


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
        _full(loss, scale), logs, target, None, reduction, ignore_index, count
    )
    return loss, _aten._log_softmax_backward_data.default(grad, logs, 1, logits.dtype)


def _full(loss: Tensor, scale: float) -> Tensor:
    return torch.full_like(loss, scale)


for _function in (linear_backward, linear_activation_backward, mse_loss_with_grad, cross_entropy_with_grad):
    register_composite(_SCHEMAS[_function.__name__], _function)
