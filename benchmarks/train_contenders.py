"""Contenders of `train.py`: every way to run a training step."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from train_models import Loss

Step = Callable[..., Tensor]
Build = Callable[[nn.Module, torch.optim.Optimizer, Loss], Step]


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to make a training step.

    Attributes:
        title: Its name in the tables.
        build: Returns the step: it takes a batch, inputs and target, and returns the loss.
        options: Of the optimizer.
        is_compiled: Whether it has a compile time worth stating.
        needs: The package without which it cannot be.
        is_run: Whether its step has a method `run`, which takes many in one call, and is measured.
    """

    title: str
    build: Build
    options: Mapping[str, Any] = field(default_factory=dict)
    is_compiled: bool = False
    needs: str = "torch"
    is_run: bool = False

    def missing(self) -> str | None:
        return None if importlib.util.find_spec(self.needs) else f"{self.needs} is not installed"


def eager(model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Loss) -> Step:
    """Return the loop body of everyone."""

    def step(*batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_fn(model(*batch[:-1]), batch[-1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def compiled_forward(model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Loss) -> Step:
    """Return a step whose forward and loss are compiled, and so their gradients."""
    return _step_of(compiled_loss(model, loss_fn), optimizer.zero_grad, optimizer.step)


def compiled_parts(model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Loss) -> Step:
    """Return a step whose forward and loss are compiled, and its optimizer, too."""
    return _step_of(compiled_loss(model, loss_fn), optimizer.zero_grad, torch.compile(optimizer.step))


def compiled_loss(model: nn.Module, loss_fn: Loss) -> Step:
    return torch.compile(lambda *batch: loss_fn(model(*batch[:-1]), batch[-1]))


def _step_of(loss_of: Step, clear: Callable[[], Any], update: Callable[[], Any]) -> Step:
    def step(*batch: Tensor) -> Tensor:
        clear()
        loss = loss_of(*batch)
        loss.backward()
        update()
        return loss.detach()

    return step


def compiled_whole(model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Loss) -> Step:
    """Return the loop body, compiled as it stands: torch.compile parts it where it has to."""
    return torch.compile(eager(model, optimizer, loss_fn))


def compiled_gradients(model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Loss) -> Step:
    """Return a step of two compiled functions: loss and gradients without autograd, and the optimizer."""
    torch._dynamo.config.trace_autograd_ops = True
    parameters = list(model.parameters())

    def gradients(*batch: Tensor) -> tuple[Tensor, ...]:
        loss = loss_fn(model(*batch[:-1]), batch[-1])
        return loss.detach(), *torch.autograd.grad(loss, parameters)

    compute, update = torch.compile(gradients, fullgraph=True), torch.compile(optimizer.step)

    def step(*batch: Tensor) -> Tensor:
        loss, *found = compute(*batch)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient
        update()
        return loss

    return step


def graph(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Loss, *, backend: str = "aten"
) -> Step:
    """Return a step as one graph, planned and replayed."""
    from npu_runtime import TrainStep

    return TrainStep(model, optimizer, loss_fn, backend=backend, capture="require")


CONTENDERS = {
    "eager": Contender("eager", eager),
    "eager-foreach": Contender("eager, foreach=True", eager, {"foreach": True}),
    "eager-fused": Contender("eager, fused=True", eager, {"fused": True}),
    "compile-forward": Contender("torch.compile, forward and loss", compiled_forward, is_compiled=True),
    "compile-forward-fused": Contender(
        "torch.compile, forward and loss; fused=True", compiled_forward, {"fused": True}, is_compiled=True
    ),
    "compile-parts": Contender(
        "torch.compile, forward and loss; optimizer", compiled_parts, is_compiled=True
    ),
    "compile-whole": Contender("torch.compile, whole step", compiled_whole, is_compiled=True),
    "compile-gradients": Contender(
        "torch.compile, loss and gradients; optimizer", compiled_gradients, is_compiled=True
    ),
    "ours": Contender("TrainStep", graph, is_compiled=True),
    "ours-host": Contender(
        "TrainStep, backend host", partial(graph, backend="host"), is_compiled=True, needs="npu_cuda"
    ),
    "ours-run": Contender(
        "TrainStep.run, backend host",
        partial(graph, backend="host"),
        is_compiled=True,
        needs="npu_cuda",
        is_run=True,
    ),
}
FORWARD = ("compile-forward", "compile-forward-fused")
FULLY = ("compile-parts", "compile-whole", "compile-gradients")
OURS = ("ours", "ours-host", "ours-run")
