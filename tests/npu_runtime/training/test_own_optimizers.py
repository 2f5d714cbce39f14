"""Optimizers that are none of torch.optim: a step does what they do in eager PyTorch, or says why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from npu_runtime import TrainStep
from npu_runtime.errors import TracingError

mse = nn.functional.mse_loss


class Replacing(optim.Optimizer):
    """Makes its momentum anew in each step, as one writes it without foreach."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                old = state.get("m", torch.zeros_like(parameter))
                state["m"], state["before"] = old * 0.9 + parameter.grad, old
                parameter.sub_(group["lr"] * (state["m"] + 0.5 * state["before"]))


class Counting(Replacing):
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr)
        self.count = 0

    def step(self, closure: Any = None) -> None:
        self.count += 1
        super().step()


def step_of(kind: Any) -> tuple[nn.Module, optim.Optimizer, Any, Any]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    optimizer = kind(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = mse(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    batch = torch.randn(6, 4).double(), torch.randn(6, 3).double()
    return model, optimizer, step, batch


def test_state_that_is_replaced_is_kept_from_step_to_step() -> None:
    model, optimizer, step, batch = step_of(Replacing)
    expected = [step(*batch) for _ in range(5)]
    twin, own, function, _ = step_of(Replacing)
    traced = TrainStep(function)

    torch.testing.assert_close([traced(*batch) for _ in range(5)], expected)
    torch.testing.assert_close(own.state[twin.weight], optimizer.state[model.weight])


def test_an_optimizer_that_counts_in_python_is_refused_and_left_alone() -> None:
    _, optimizer, function, batch = step_of(Counting)
    traced = TrainStep(function)
    traced(*batch)  # in eager: it makes the state

    with pytest.raises(
        TracingError, match=r"(?s)the step of Counting changes its attribute 'count'.*optimizer\.state"
    ):
        traced(*batch)
    assert optimizer.count == 1


def test_state_of_one_parameter_in_two_optimizers_is_refused() -> None:
    model = nn.Linear(4, 3)
    first, second = (optim.Adam(model.parameters()) for _ in range(2))

    def step(x: Tensor, y: Tensor) -> Tensor:
        first.zero_grad()
        loss = mse(model(x), y)
        loss.backward()
        first.step()
        second.step()
        return loss

    with pytest.raises(
        TracingError, match="(?s)two optimizers keep state of the parameter 'weight'.*let one of them"
    ):
        TrainStep(step)(torch.randn(6, 4), torch.randn(6, 3))
