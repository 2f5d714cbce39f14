"""A story of training told twice: with eager steps, and with `TrainStep`; nothing may end differently."""

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, optim

from npu_runtime import TrainStep
from tests.support.training.eager import State, full_state, step_by_hand

MakeOptimizer = Callable[[nn.Module], optim.Optimizer]


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), 0.1, momentum=0.9)


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters(), 0.01, eps=1e-4)


@dataclass
class Told:
    """Model, optimizer and step of one side.

    Attributes:
        model: The model.
        optimizer: Of the model.
        loss: The loss function.
        step: Takes a batch; eager, or a `TrainStep`.
        is_eager: Which side it is.
    """

    model: nn.Module
    optimizer: optim.Optimizer
    loss: Callable[..., Any]
    is_eager: bool

    def __post_init__(self) -> None:
        parts = self.model, self.optimizer, self.loss
        self.step = step_by_hand(*parts) if self.is_eager else TrainStep(*parts, capture="require")

    def state(self) -> State:
        return full_state(self.model, self.optimizer)


Story = Callable[[Told], Any]


def assert_as_eager(
    story: Story, model: nn.Module, optimizer: MakeOptimizer = adam, loss: Callable[..., Any] = F.mse_loss
) -> None:
    """Fail unless results, all state and the random state end as they do with eager steps, of one seed."""
    ends = []
    for is_eager in (False, True):
        mine = copy.deepcopy(model)
        side = Told(mine, optimizer(mine), loss, is_eager)
        torch.manual_seed(5)
        results = story(side)
        ends.append({"results": results, **side.state(), "random state": torch.get_rng_state()})

    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6, equal_nan=True)


def as_eager(
    build: Callable[[], nn.Module], optimizer: MakeOptimizer = adam, loss: Callable[..., Any] = F.mse_loss
) -> Callable[[Story], Callable[[], None]]:
    """Make a test of a story: see `assert_as_eager`."""
    return lambda story: lambda: assert_as_eager(story, build(), optimizer, loss)


def rows(count: int = 5, width: int = 7, outputs: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, width), torch.randn(count, outputs)


def run_in_threads(count: int, run: Callable[[int], Any]) -> None:
    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
