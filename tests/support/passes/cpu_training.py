"""Shared by the tests of the CPU passes for training steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, TensorType
from npu_passes import PassManager
from npu_runtime import TrainStep
from npu_runtime.training import compile_ir
from tests.support.training.cases import Case
from tests.support.training.eager import State, full_state, trained
from tests.support.training.judging import problems, reference
from tests.support.training.optimizers import recipe_named

RATE = {
    "hyperparameters": {
        "group0.lr": 0.5,
        "group0.momentum": 0,
        "group0.dampening": 0,
        "group0.weight_decay": 0,
    }
}


class Classifier(nn.Module):
    """Two convolutions, and between them what images go through in training."""

    def __init__(self, channels: int = 32, pool: nn.Module | None = None) -> None:
        super().__init__()
        half = channels // 2
        self.features = nn.Sequential(
            nn.Conv2d(3, half, 3, padding=1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            pool or nn.MaxPool2d(2),
            nn.Conv2d(half, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # type: ignore[no-any-return]


def step_of(model: nn.Module, batch: tuple[Any, ...]) -> Graph:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    graph = compile_ir(model, optimizer, F.cross_entropy, batch)
    return PassManager.of_pipeline("minimal").run(graph).graph


def count_of(graph: Graph, *op_types: str) -> int:
    return len(list(graph.nodes_of(*op_types)))


def assert_trains(
    case: Case, passes: str, is_done: Callable[[Graph], bool], same: Sequence[Case] = ()
) -> None:
    """Fail unless training with these passes, which must do something, is as near to float64 as eager's.

    Args:
        case: What is trained.
        passes: The passes.
        is_done: Whether they did something.
        same: Cases that train the same, and round otherwise: equivalent forms of eager training as well.
    """
    for name in ("SGD, nesterov", "Adam", "RMSprop"):
        recipe = recipe_named(name)

        found = trained(with_passes(passes, is_done), case, recipe)

        eager = tuple(form for each in (case, *same) for form in reference(each, recipe).eager)
        assert not problems(found, replace(reference(case, recipe), eager=eager)), name


def batch_of(count: int = 8, size: int = 16) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


def layouts(graph: Graph) -> dict[str, list[str]]:
    """Return, by op, the layouts of what makes images of many channels."""
    found: dict[str, list[str]] = {}
    for node in graph.body:
        type = node.outputs[0].type
        if isinstance(type, TensorType) and type.rank == 4 and type.static_shape[2] > 1:
            layout = str(type.memory_format).removeprefix("torch.").removesuffix("_format")
            found.setdefault(node.op_type.split(".")[1], []).append(layout)
    return found


def with_passes(passes: str, is_done: Callable[[Graph], bool]) -> type[Any]:
    """Return a contender that trains by `TrainStep`, with passes that must have done something."""

    class Contender:
        def __init__(self, case: Case, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            self._model, self._optimizer = model, optimizer
            self.step = TrainStep(model, optimizer, case.loss, passes=passes)

        def __call__(self, *batch: Any) -> Any:
            return self.step(*batch)

        def state(self) -> State:
            assert is_done(self.step.graph)
            return full_state(self._model, self._optimizer)

    return Contender
