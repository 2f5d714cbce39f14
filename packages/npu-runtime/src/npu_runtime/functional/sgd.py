"""SGD as one op of the namespace ``npu``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import npu_passes.ops.training  # noqa: F401 - registers its ops

SgdStates = tuple[list[Tensor], list[Tensor]]


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


def sgd_step(
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
) -> SgdStates:
    """Return the parameters and momentum buffers after `sgd_step_`, as new tensors."""
    results: SgdStates = torch.ops.npu.sgd_step(
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
    return results
