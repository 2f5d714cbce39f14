"""Primitives of training steps as functions, for steps written by hand.

Each calls one op of the namespace ``npu``, which is one node of a graph when the step is traced. Functions
whose name ends with an underscore, and `bias_corr_out`, write to their arguments; functionalization
replaces their ops by ops that return new tensors.

A step of Adam: for each parameter ``p``, with ``g`` its gradient and ``t`` its counter after the increment::

    g = -g                                       # maximize
    p = p * (1 - lr * weight_decay)              # decoupled (AdamW), else g = g + weight_decay * p
    exp_avg = beta1 * exp_avg + (1 - beta1) * g
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
    v = max_exp_avg_sq = max(max_exp_avg_sq, exp_avg_sq)   # amsgrad, else v = exp_avg_sq
    p = p - lr * exp_avg / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + eps)

Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101; Reddi et al., ICLR 2018
(amsgrad); torch.optim.Adam and AdamW.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import npu_passes.ops.fused
import npu_passes.ops.training  # noqa: F401 - both register their ops

__all__ = [
    "adam_step_",
    "bias_corr_out",
    "grad_zero_",
    "linear",
    "linear_activation",
    "mse_grad",
    "relu",
    "relu_backward",
    "sgd_step_",
    "step_inc_",
]


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


def step_inc_(step: Tensor) -> None:
    """Add 1 to a step counter of float32, float64, int32 or int64.

    Raises:
        PassError: It has another dtype, which cannot count the steps of a training.
    """
    torch.ops.npu.step_inc_(step)


def bias_corr_out(
    step: Tensor, beta1: float, beta2: float, *, bc1_inv: Tensor, bc2_inv: Tensor
) -> tuple[Tensor, Tensor]:
    """Write the bias corrections of Adam's moments, ``1 / (1 - beta ** step)`` for each beta.

    With it, an update is ``exp_avg * bc1_inv / (sqrt(exp_avg_sq * bc2_inv) + eps)``.

    Args:
        step: One element, at least 1: the counter after its increment; float32, float64, int32 or int64.
        beta1: At least 0, below 1.
        beta2: Likewise.
        bc1_inv: One element, of any floating-point dtype: receives the multiplier for ``beta1``, computed
            in float64.
        bc2_inv: Likewise, for ``beta2``.

    Returns:
        ``bc1_inv`` and ``bc2_inv``.

    Raises:
        PassError: A tensor has another dtype or number of elements.

    Source: Kingma and Ba, Adam, arXiv:1412.6980, section 3.
    """
    torch.ops.npu.bias_corr_out(step, beta1, beta2, bc1_inv=bc1_inv, bc2_inv=bc2_inv)
    return bc1_inv, bc2_inv


def adam_step_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    amsgrad: bool = False,
    maximize: bool = False,
) -> None:
    """Take a step of Adam or AdamW in place. The defaults are those of `torch.optim.Adam`.

    The formulas are those of this module. On CPUs and CUDA devices PyTorch's fused kernels compute them.
    Where the tensors of a parameter differ in dtype or memory layout, the step is computed on copies in the
    wider dtype and written back.

    Args:
        params: Any shapes, floating point or complex, on any devices.
        grads: Of these shapes; only read.
        exp_avgs: The first moments, of these shapes; initially zeros.
        exp_avg_sqs: The second moments, likewise.
        max_exp_avg_sqs: The largest second moments for amsgrad, likewise; else empty.
        steps: The number of steps taken before, initially 0: float32, 0-d, one per parameter, on its device.
        lr: A number, or a 0-d tensor on the device of the parameters, which a CUDA graph reads at each
            replay.
        beta1: Decay of the first moments.
        beta2: Decay of the second moments.
        eps: Added to the root.
        weight_decay: Factor of the decay of parameters.
        decoupled: Use the decoupled weight decay of AdamW.
        amsgrad: Divide by the root of the largest second moments so far.
        maximize: Maximize the objective.

    Raises:
        PassError: The lists do not match, or a tensor that is written shares memory with a gradient or with
            another one that is written.
    """
    torch.ops.npu.adam_step_(
        list(params),
        list(grads),
        list(exp_avgs),
        list(exp_avg_sqs),
        list(max_exp_avg_sqs),
        list(steps),
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        weight_decay=weight_decay,
        decoupled=decoupled,
        amsgrad=amsgrad,
        maximize=maximize,
    )


def sgd_step_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffers: Sequence[Tensor],
    *,
    lr: float | Tensor,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> None:
    """Take a step of SGD in place. The defaults are those of `torch.optim.SGD`.

    For each parameter, with ``g`` its gradient::

        g = -g                                       # maximize
        g = g + weight_decay * p
        buffer = momentum * buffer + (1 - dampening) * g       # with momentum
        d = g + momentum * buffer if nesterov else buffer      # with momentum, else d = g
        p = p - lr * d

    The first step of ``torch.optim.SGD`` creates the buffer as a copy of the gradient, without dampening. A
    first buffer of zeros gives the same if ``dampening`` is 0. If it is not, take the first step with
    ``dampening=0``.

    Args:
        params: Any shapes, floating point or complex, on any devices.
        grads: Of these shapes; only read.
        momentum_buffers: Of these shapes if ``momentum`` is not 0, initially zeros; else empty.
        lr: A number, or a 0-d tensor on the device of the parameters, which a CUDA graph reads at each
            replay.
        momentum: Factor of the buffers.
        dampening: Fraction of the gradient that does not enter the buffers.
        weight_decay: Factor of the decay of parameters.
        nesterov: Use Nesterov momentum.
        maximize: Maximize the objective.

    Raises:
        PassError: As for `adam_step_`.

    Source: Sutskever et al., On the importance of initialization and momentum, ICML 2013; torch.optim.SGD.
    """
    torch.ops.npu.sgd_step_(
        list(params),
        list(grads),
        list(momentum_buffers),
        lr=lr,
        momentum=momentum,
        dampening=dampening,
        weight_decay=weight_decay,
        nesterov=nesterov,
        maximize=maximize,
    )
