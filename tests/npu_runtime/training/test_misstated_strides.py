"""Tensors whose strides FakeTensors state wrongly: gradients, and what dropout reads (torch 2.13)."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn.functional import dropout, logsigmoid, mse_loss

from npu_runtime import TrainStep


class Patches(nn.Module):
    """A convolution with a group norm, whose pixels become tokens: their gradient comes back transposed."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), activation)
        self.tokens = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> Any:
        return self.tokens(self.layers(images).flatten(2).transpose(1, 2)).mean(1)


ACTIVATIONS = [nn.ELU(), nn.Hardswish(), nn.Hardsigmoid(), nn.Softplus(), nn.Hardtanh(), nn.GELU()]


def _trained(step: Any, model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    for _ in range(2):
        step(torch.randn(2, 3, 4, 5), torch.randn(2, 5))
    return [item.detach().clone() for item in model.parameters()]


def _eager(model: nn.Module, run: Any) -> list[torch.Tensor]:
    optimizer = optim.SGD(model.parameters(), 0.5)

    def step(images: torch.Tensor, target: torch.Tensor) -> None:
        optimizer.zero_grad()
        mse_loss(run(images), target).backward()
        optimizer.step()

    return _trained(step, model)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda item: type(item).__name__)
@pytest.mark.parametrize("backend", ["aten", "host"])
def test_a_step_gives_a_group_norm_its_gradient_in_the_layout_it_reads(
    backend: str, activation: nn.Module
) -> None:
    torch.manual_seed(0)
    model = Patches(activation)
    wanted = _eager(copied := copy.deepcopy(model), copied)

    found = _trained(TrainStep(model, optim.SGD(model.parameters(), 0.5), mse_loss, backend=backend), model)

    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_backward_pass_gives_a_group_norm_its_gradient_in_the_layout_it_reads(
    dynamic: bool,
) -> None:
    torch.manual_seed(0)
    model = Patches(nn.ELU())
    wanted = _eager(copied := copy.deepcopy(model), copied)

    found = _eager(model, torch.compile(model, backend="npu", dynamic=dynamic))

    torch.testing.assert_close(found, wanted)


class PerPixel(nn.Module):
    """Scales gray images in channels-last, and returns them so, which strides of one channel may not say."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(1, 1)
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.last = nn.Linear(16 * 13 * 13, 5)

    def forward(self, images: torch.Tensor) -> Any:
        scaled = self.scale(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.last(self.layers(scaled))


def test_clipping_gradients_leaves_the_layout_that_a_convolution_returns() -> None:
    torch.manual_seed(0)
    model = PerPixel()
    copied = copy.deepcopy(model)
    images, target = torch.randn(16, 1, 28, 28), torch.randn(16, 5)
    optimizer = optim.SGD(copied.parameters(), 0.1)
    loss = mse_loss(copied(images), target)
    loss.backward()
    nn.utils.clip_grad_norm_(copied.parameters(), 0.5)
    optimizer.step()

    step = TrainStep(model, optim.SGD(model.parameters(), 0.1), mse_loss, clip_grad_norm=0.5)

    torch.testing.assert_close(step(images, target), loss.detach())
    torch.testing.assert_close(list(model.parameters()), list(copied.parameters()))


class Dropped(nn.Module):
    """A dropout of what an op makes of a transposed tensor: PyTorch draws in the order of the memory."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        ops = {"batch norm": nn.BatchNorm1d(3), "power": partial(pow, 2.0), "log sigmoid": logsigmoid}
        self.op = ops[kind]
        self.last = nn.Linear(4, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        transposed = images[..., 0].transpose(1, 2).contiguous().transpose(1, 2)
        return self.last(dropout(self.op(transposed), 0.5)).mean(1)


@pytest.mark.parametrize("backend", ["aten", "host"])
@pytest.mark.parametrize("kind", ["batch norm", "power", "log sigmoid"])
def test_a_step_drops_the_elements_that_pytorch_drops(kind: str, backend: str) -> None:
    torch.manual_seed(0)
    model = Dropped(kind)
    wanted = _eager(copied := copy.deepcopy(model), copied)

    found = _trained(TrainStep(model, optim.SGD(model.parameters(), 0.5), mse_loss, backend=backend), model)

    torch.testing.assert_close(found, wanted)
