"""Optimizers of PyTorch, and the same steps as ops, on parameters of uneven shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import npu_passes.ops.training  # noqa: F401 - registers them

SHAPES = [(3, 5), (7,), (), (2, 3, 1, 5)]
ADAM = {
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "decoupled": False,
    "amsgrad": False,
    "maximize": False,
}
SGD = {
    "lr": 0.01,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "nesterov": False,
    "maximize": False,
}


@dataclass
class Lists:
    """What an Adam works on; of an SGD, ``exp_avgs`` are the momentum buffers."""

    params: list[Tensor]
    exp_avgs: list[Tensor] = field(init=False)
    exp_avg_sqs: list[Tensor] = field(init=False)
    maxima: list[Tensor] = field(init=False)
    steps: list[Tensor] = field(init=False)
    amsgrad: bool = False

    def __post_init__(self) -> None:
        self.exp_avgs, self.exp_avg_sqs = ([torch.zeros_like(p) for p in self.params] for _ in range(2))
        self.maxima = [torch.zeros_like(p) for p in self.params] if self.amsgrad else []
        self.steps = [torch.zeros(()) for _ in self.params]

    @property
    def adam(self) -> tuple[list[Tensor], ...]:
        return self.exp_avgs, self.exp_avg_sqs, self.maxima, self.steps


def random(dtype: torch.dtype = torch.float32, shapes: Any = SHAPES) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def gradients(count: int, shapes: Any = SHAPES) -> list[list[Tensor]]:
    """Return the gradients of some steps, in float64."""
    return [random(torch.float64, shapes) for _ in range(count)]


def cast(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [tensor.to(dtype, copy=True) for tensor in tensors]


def torch_run(
    kind: type[torch.optim.Optimizer],
    start: list[Tensor],
    grads: list[list[Tensor]],
    dtype: torch.dtype,
    **options: Any,
) -> tuple[list[Tensor], torch.optim.Optimizer]:
    params = [torch.nn.Parameter(p) for p in cast(start, dtype)]
    optimizer = kind(params, **options)
    for row in grads:
        for param, grad in zip(params, cast(row, dtype), strict=True):
            param.grad = grad
        optimizer.step()
    return [param.detach() for param in params], optimizer


def assert_as_good(ours: list[Tensor], theirs: list[Tensor], exact: list[Tensor]) -> None:
    """Compare with float64: the error may be 4 times that of PyTorch, or 2 units in the last place."""
    for our, their, true in zip(ours, theirs, exact, strict=True):
        assert (our.dtype, our.shape) == (their.dtype, their.shape)
        floor = 4 * (their.double() - true).abs().max() + 2 * torch.finfo(our.dtype).eps * true.abs().max()
        assert (our.double() - true).abs().max() <= floor
