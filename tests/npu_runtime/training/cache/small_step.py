"""A small model with its optimizer and a batch, whose training steps are cached."""

from __future__ import annotations

import torch
from torch import nn

from npu_runtime import TrainStep


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.drop(self.norm(self.first(x)).relu())
        return self.second(hidden)


def parts(rate: float = 0.01) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=rate)


BATCH = (torch.linspace(-1, 1, 24).reshape(6, 4), torch.linspace(0, 1, 18).reshape(6, 3))


def note(step: TrainStep) -> str:
    return step.artifact.cache_note
