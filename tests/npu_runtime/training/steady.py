"""A small training step that has been taken twice, with its generated call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F

from npu_runtime import TrainStep
from npu_runtime.training.steady_call import make_steady_call


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second = nn.Linear(4, 4), nn.LeakyReLU(0.1), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale, self.shift = 2.0, torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(self.norm(x)))) * self.scale + self.shift


class Steady:
    """A step that has been taken twice, and its generated call."""

    def __init__(self, make: Callable[..., optim.Optimizer] = optim.SGD, **settings: Any) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = make(self.model.parameters(), **{"lr": 0.1, **settings})
        self.step = TrainStep(self.model, self.optimizer, F.mse_loss)
        self.batch = torch.randn(6, 4), torch.randn(6, 4)
        self.step(*self.batch)
        self.step(*self.batch)
        self.call = make_steady_call(self.step.artifact, self.step._specializations.guards, borrow=False)

    @property
    def group(self) -> dict[str, Any]:
        return self.optimizer.param_groups[0]
