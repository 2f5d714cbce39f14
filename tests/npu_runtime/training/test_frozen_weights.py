"""Weights and groups that a step does not train: they are read at each call, as in eager mode."""

from typing import Any

import torch
from torch import nn, optim
from torch.nn import functional as F

from npu_runtime import TrainStep
from tests.support.training.models import MLP
from tests.support.training.side_by_side import Told, assert_as_eager, rows, sgd


class BehindFrozenImages(nn.Module):
    """A trained layer behind a convolution that is not, which is computed in channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Conv2d(3, 8, 3, padding=1).requires_grad_(False)
        self.head = nn.Linear(8 * 36, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.images(x).flatten(1))
        return y


def test_frozen_convolutions_may_be_written_to_between_steps() -> None:
    x, y = torch.linspace(-1, 1, 4 * 3 * 36).reshape(4, 3, 6, 6), torch.tensor([0, 1, 0, 1])

    def story(told: Told) -> Any:
        losses = []
        for _ in range(3):
            losses.append(told.step(x, y))
            with torch.no_grad():
                told.model.images.weight.mul_(1.5)  # type: ignore[union-attr,operator]
        return losses

    assert_as_eager(story, BehindFrozenImages(), sgd, F.cross_entropy)


def in_two_groups(model: nn.Module) -> optim.Optimizer:
    frozen = [item for item in model.parameters() if not item.requires_grad]
    trained = [item for item in model.parameters() if item.requires_grad]
    return optim.AdamW([{"params": frozen, "lr": 0.01}, {"params": trained, "lr": 0.1}])


def test_the_rate_of_a_group_of_frozen_parameters_may_change() -> None:
    def story(told: Told) -> Any:
        scheduler = optim.lr_scheduler.StepLR(told.optimizer, 1, 0.5)
        losses = []
        for _ in range(3):
            x, y = rows()
            losses += [told.step(x, y), told.step(x[1:], y[1:])]  # each size has a program
            scheduler.step()
        return losses

    model = MLP()
    model.fc1.requires_grad_(False)
    assert_as_eager(story, model, in_two_groups)


def test_weights_that_named_passes_prepare_are_noted() -> None:
    x, y = torch.linspace(-1, 1, 4 * 3 * 36).reshape(4, 3, 6, 6), torch.tensor([0, 1, 0, 1])
    notes = {}
    for passes in ("auto", "cpu"):
        model = BehindFrozenImages()
        model.images.weight.data = model.images.weight.data.contiguous()
        step = TrainStep(model, sgd(model), F.cross_entropy, passes=passes, backend="aten")
        step(x, y)
        notes[passes] = [item for item in step.artifact.report.notes if item.kind == "prepared-weight"]

    assert notes["auto"] == []
    (note,) = notes["cpu"]
    assert "'images.weight' is not trained, and the passes read it once" in note.message
    assert "leave passes= to the default" in note.fix
